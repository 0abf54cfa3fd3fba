#!/usr/bin/env bash
# Makes .venv: a virtual environment with the CPU build of PyTorch and what building, testing and linting need.
# Run by `make setup`. Doing it again is quick and changes nothing. Settings, from the environment:
#   PYTHON           interpreter to make the environment from            (python3)
#   TORCH_VERSION    release to install                                  (2.13.0)
#   TORCH_INDEX_URL  package index to take PyTorch from, used as given   (see pick_index)
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
TORCH_VERSION=${TORCH_VERSION:-2.13.0}
CPU_INDEX=https://download.pytorch.org/whl/cpu
venv=.venv/bin/python

fail() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

check_tools() {
  command -v "$PYTHON" >/dev/null || fail "'$PYTHON' was not found. Install Python 3.10 to 3.14, or set PYTHON."
  "$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' ||
    fail "$("$PYTHON" --version) is not supported: Python 3.10 to 3.14 is. Set PYTHON to another interpreter."
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "Python's venv module is missing. Debian, Ubuntu: apt-get install python3-venv"
  "$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    fail "Python's headers are missing. Debian, Ubuntu: apt-get install python3-dev. Fedora: dnf install python3-devel"
  local cxx=${CXX:-c++}
  command -v "$cxx" >/dev/null ||
    fail "no C++ compiler ('$cxx' was not found). Debian, Ubuntu: apt-get install build-essential. Fedora: dnf install gcc-c++. macOS: xcode-select --install"
  echo '#include <concepts>' | "$cxx" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null ||
    fail "'$cxx' cannot compile C++20: $("$cxx" --version | head -n 1). GCC 11 or Clang 14 and later can; set CXX to one."
}

torch_is_good() {
  TORCH_DEVICE_BACKEND_AUTOLOAD=0 "$venv" - "$TORCH_VERSION" 2>/dev/null <<'PY'
import sys, torch
release = torch.__version__.split("+")[0]
sys.exit(not (release == sys.argv[1] and torch.version.cuda is None and torch.version.hip is None))
PY
}

# Where to take PyTorch from: TORCH_INDEX_URL, else wherever pip looks by itself if that gives a CPU build, else
# PyTorch's own index of CPU builds. (On Linux, PyPI's torch is a CUDA build: gigabytes that nothing here uses.)
pick_index() {
  if [ -n "${TORCH_INDEX_URL:-}" ]; then
    echo "--index-url=$TORCH_INDEX_URL"
    return
  fi
  "$venv" -m pip install --quiet --dry-run --no-deps --ignore-installed --report - "torch==$TORCH_VERSION" 2>/dev/null |
    "$venv" -c '
import json, re, sys
try:
    [torch] = json.load(sys.stdin)["install"]
except (ValueError, KeyError):
    sys.exit(1)
needs = torch["metadata"].get("requires_dist", [])
sys.exit(any(re.match(r"(nvidia|cuda|pytorch-triton-rocm)\b", need) for need in needs))' ||
    echo "--index-url=$CPU_INDEX"
}

install_torch() {
  local index
  index=$(pick_index)
  echo "setup: installing torch $TORCH_VERSION${index:+ from ${index#--index-url=}}"
  "$venv" -m pip install --quiet ${index:+"$index"} "torch==$TORCH_VERSION" ||
    fail "PyTorch $TORCH_VERSION could not be installed. Set TORCH_INDEX_URL to an index that has its CPU build."
  torch_is_good ||
    fail "the torch that was installed is not the CPU build of $TORCH_VERSION:" \
      "  $(TORCH_DEVICE_BACKEND_AUTOLOAD=0 "$venv" -c 'import torch; print(torch.__version__, "CUDA", torch.version.cuda)' 2>&1 | tail -n 1)" \
      "Set TORCH_INDEX_URL=$CPU_INDEX (or a mirror of it), remove .venv and run again."
}

check_tools
[ -x "$venv" ] || "$PYTHON" -m venv .venv
torch_is_good || install_torch
# What pyproject.toml names: the build back end (the build runs in this environment, against this torch) and the extras.
"$venv" - <<'PY' >.venv/requirements.txt
import sys
try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
extras = project["project"]["optional-dependencies"]
needed = [extras[name] for name in ("stablehlo", "cli", "test", "lint")]
print(*project["build-system"]["requires"], *(line for lines in needed for line in lines), sep="\n")
PY
"$venv" -m pip install --quiet --requirement .venv/requirements.txt
