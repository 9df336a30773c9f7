#!/bin/sh
# Chromium and its driver for the tests of the HTML pages: under CI from Debian's packages, if they are not there yet.
set -eu
if command -v chromedriver >/dev/null && { command -v chromium || command -v google-chrome; } >/dev/null; then
    exit 0
fi
if [ -z "${CI:-}" ]; then
    echo "No chromium and chromedriver here: the browser tests will be skipped. CI=true make test installs them."
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "No apt-get here: install chromium and chromedriver to run the browser tests." >&2
    exit 1
fi
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
$as_root apt-get update -qq
$as_root apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null
