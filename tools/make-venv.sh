#!/usr/bin/env bash
# Makes the virtual environment. Debian's python3 comes without ensurepip; then its python3-venv package is needed.
set -eu
python=$1 venv=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Fairway needs Python 3.11 or newer" >&2; exit 1; }
[ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1 && exit 0
"$python" -m venv "$venv" 2>/dev/null && exit 0
rm -rf "$venv"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
    "$python" -m venv "$venv"
else
    echo "python's venv module is incomplete: install it first (Debian: apt-get install python3-venv)" >&2
    exit 1
fi
