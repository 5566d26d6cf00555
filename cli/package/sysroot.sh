#!/bin/sh
# What mcc is linked with, for hosts of another architecture: sysroot.sh FOLDER ARCH PACKAGE... fetches Debian's packages for ARCH
# (arm64) with an apt that has its own state, and unpacks them. Nothing of them is installed or run here.
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
arch=$2
shift 2
state=$folder/apt
mkdir -p "$state/lists/partial" "$state/archives/partial"
: >"$state/status"
quietly() {
    "$@" >"$state/log" 2>&1 || { tail -n 20 "$state/log" >&2; exit 1; }
}
foreign() {
    quietly apt-get -q -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State="$state" \
        -o Dir::State::status="$state/status" -o Dir::State::lists="$state/lists" -o Dir::Cache="$state" \
        -o APT::Sandbox::User=root -o Acquire::Languages=none "$@"
}
foreign update
(cd "$state/archives" && foreign download "$@")
for package in "$state"/archives/*.deb; do
    dpkg -x "$package" "$folder"
done
rm -rf "$state"
