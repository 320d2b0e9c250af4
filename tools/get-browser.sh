#!/usr/bin/env bash
# Debian's chromium for tests/report, tests/ui, tests/docs and docs/screenshots.py. Where it cannot be had, those tests are
# skipped and say so.
set -u
works() { # Ubuntu's chromium-browser may be a stub that asks for a snap: it is there, and does not run.
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null && "$name" --version >/dev/null 2>&1 && return 0
    done
    return 1
}
works && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no chromium here, and no way to install it: pages are not tested in a browser" >&2
    exit 0
fi
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; }
# A fresh container has no lists of packages yet; elsewhere they may be too old to be of use.
install || { apt-get update -qq >/dev/null 2>&1 && install; }
works || echo "apt-get could not install a chromium that runs: pages are not tested in a browser" >&2
exit 0
