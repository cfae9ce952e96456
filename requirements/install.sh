#!/bin/sh
# Builds the virtual environment for `make` from requirements/lock.txt. PYTHON: the interpreter; VENV: where to build.
#
# Every package is checked against the hash in the lock file, with one exception: torch on Linux without an NVIDIA card. There
# PyTorch's own processor-only wheels are taken where they can be reached, which bear the same version as those that the hashes
# are of and are other files; elsewhere the index that pip is set up with decides. It is taken by version, alone: nothing else
# comes from that index.
set -eu

if ! command -v "$PYTHON" >/dev/null 2>&1; then
    echo "There is no '$PYTHON' here. Install Python 3.11 or later, or name one: make PYTHON=/path/to/python3" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "keepworth needs Python 3.11 or later; '$PYTHON' is $("$PYTHON" -V 2>&1). Name a later one: make PYTHON=python3.12" >&2
    exit 1
fi
if ! "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    echo "'$PYTHON' comes without venv. On Debian and Ubuntu: apt install python3-venv" >&2
    exit 1
fi

[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
python="$VENV/bin/python"
lock=requirements/lock.txt
processor_wheels=https://download.pytorch.org/whl/cpu

pip() { "$python" -m pip --disable-pip-version-check "$@"; }
# The packages of the lock file whose names fit a pattern, with their hashes; with -v, the others.
locked() {
    inverted=0
    [ "$1" != -v ] || { inverted=1; shift; }
    awk -v pattern="^($1)==" -v inverted=$inverted '/^[A-Za-z0-9]/ { shown = ($0 ~ pattern) != inverted } shown' "$lock"
}
# Installs the part of the lock file on standard input, nothing else, and only what fits its hashes.
install_checked() {
    part=$(mktemp)
    cat >"$part"
    pip install --quiet --require-hashes --no-deps --only-binary :all: -r "$part" || { rm -f "$part"; return 1; }
    rm -f "$part"
}
reachable() {
    "$python" - "$1" <<'PYTHON'
import sys
import urllib.request

try:
    urllib.request.urlopen(sys.argv[1], timeout=5).close()
except OSError:
    sys.exit(1)
PYTHON
}
installed() { "$python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || true; }

cuda='triton|cuda-[a-z]+|nvidia-[a-z0-9-]+'
locked pip | install_checked
echo "Installing what keepworth needs: once, some minutes ..."
locked -v "pip|torch|$cuda" | install_checked

torch=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$lock")
if [ "$(installed | cut -d + -f 1)" != "$torch" ]; then
    echo "Installing torch ..."
    if [ "$(uname -s)" != Linux ] || command -v nvidia-smi >/dev/null 2>&1; then
        locked torch | install_checked
    elif reachable "$processor_wheels/torch/"; then
        pip install --quiet --no-deps --index-url "$processor_wheels" "torch==$torch"
    else
        pip install --quiet --no-deps "torch==$torch"
    fi
fi
case "$(uname -s) $(installed)" in
    Linux*+*) ;; # built for the processor: it needs no more
    Linux*) locked "$cuda" | install_checked ;;
esac

echo "Installing keepworth ..."
pip install --quiet --no-deps --no-build-isolation -e .
pip check >/dev/null || { pip check >&2; exit 1; }
"$VENV/bin/keepworth" --version
