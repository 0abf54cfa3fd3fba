#!/usr/bin/env bash
# The C++ tests under AddressSanitizer with UndefinedBehaviorSanitizer, then under ThreadSanitizer; `make sanitize`.
# They are the parts without PyTorch: the chip, the heap, the pool, vector programs.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
bin=$(cd "$(dirname "$python")" && pwd)
export PATH="$bin:$PATH"

# The heap's tests end children by a fault on purpose; a child forked from a process with threads is one of them too.
export ASAN_OPTIONS=handle_segv=0:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=die_after_fork=0:halt_on_error=1:second_deadlock_stack=1

for sanitizer in address thread; do
  build=build/sanitize-$sanitizer
  cmake -S . -B "$build" -G Ninja -DNEURON_BUILD_TESTS=ON -DNEURON_SANITIZE=$sanitizer -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    "-DPython_EXECUTABLE=$bin/python" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
  cmake --build "$build" --target cpp_tests >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
  echo "sanitize: $sanitizer"
  ctest --test-dir "$build" --output-on-failure
done
