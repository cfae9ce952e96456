#!/bin/sh
# Builds the virtual environment for `make`. PYTHON: the interpreter; VENV: where to build.
set -eu

if ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo "There is no '$PYTHON' here. Install Python 3.10 or later, or name one: make PYTHON=/path/to/python3" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "recollect needs Python 3.10 or later; '$PYTHON' is $("$PYTHON" -V 2>&1). Name a later one: make PYTHON=python3.12" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    echo "'$PYTHON' comes without venv. On Debian and Ubuntu: apt install python3-venv" >&2
    exit 1
fi

[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@"; }

# On Linux the usual torch wheel brings gigabytes of CUDA along. Without an NVIDIA card, take PyTorch's own processor-only
# wheels where they can be reached; elsewhere the index that pip is set up with decides.
processor_wheels=https://download.pytorch.org/whl/cpu
torch_index=
if [ "$(uname -s)" = Linux ] && ! command -v nvidia-smi >/dev/null 2>&1 && "$VENV/bin/python" - "$processor_wheels" <<'PYTHON'
import sys
import urllib.request

try:
    urllib.request.urlopen(sys.argv[1] + "/torch/", timeout=5).close()
except OSError:
    sys.exit(1)
PYTHON
then
    torch_index="--extra-index-url $processor_wheels"
fi

if [ "$("$VENV/bin/python" -c 'import importlib.metadata as m; print(m.version("torch").split("+")[0])' 2>/dev/null)" != "$(sed -n 's/^torch==//p' requirements/constraints.txt)" ]; then
    echo "Installing torch ..."
    # shellcheck disable=SC2086 # two words, or none
    pip install --quiet $torch_index -c requirements/constraints.txt torch
fi
echo "Installing recollect and what it needs ..."
pip install --quiet -c requirements/constraints.txt -e '.[dev]'
"$VENV/bin/recollect" --version
