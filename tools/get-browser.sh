#!/usr/bin/env bash
# Debian's chromium for tests/report and docs/screenshots.py. Where it cannot be had, those tests are skipped and say so.
set -u
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no chromium here, and no way to install it: the report is not tested in a browser" >&2
    exit 0
fi
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; }
install || { apt-get update -qq >/dev/null 2>&1 && install; } ||
    echo "apt-get could not install chromium: the report is not tested in a browser" >&2
exit 0
