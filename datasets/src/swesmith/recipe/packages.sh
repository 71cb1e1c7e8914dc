#!/bin/sh
# Installs what a repository's manifest wants of the system.
#
#   packages.sh TOOLS [PACKAGE]...
#
# TOOLS are commands, separated by blanks, that must be there in the end. Package names are those of dnf; where apt's differ,
# they are changed. Where packages cannot be installed, they are told and passed over: a base may bring them by itself.
set -eu

tools=
for tool in $1; do
  command -v "$tool" >/dev/null 2>&1 || tools="$tools $tool"
done
shift
[ -n "$tools$*" ] || exit 0

if command -v apt-get >/dev/null 2>&1 && [ -e /var/lib/dpkg/status ]; then
  names=
  for package in $tools "$@"; do
    case $package in
      gcc-c++) package=g++ ;;
      pkgconf-pkg-config) package=pkg-config ;;
      gcc) package='gcc libc6-dev' ;;
    esac
    names="$names $package"
  done
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends ca-certificates $names
  rm -rf /var/lib/apt/lists/*
elif command -v dnf >/dev/null 2>&1; then
  # shellcheck disable=SC2086
  dnf install -y -q $tools "$@"
elif command -v microdnf >/dev/null 2>&1; then
  # shellcheck disable=SC2086
  microdnf install -y $tools "$@"
elif [ -n "$tools" ]; then
  echo "these commands are missing, and no package manager can install them:$tools" >&2
  exit 1
else
  echo "sandbox-bench: warning: no package manager here: these system packages were not installed: $*"
fi
