#!/bin/sh
# Brings a repository's source into the working directory.
#
#   source.sh archive FILE          unpacks it, without its single top directory
#   source.sh commit URL COMMIT     fetches that commit with git
set -eu

case $1 in
  archive)
    tar -xzf "$2" --strip-components=1 --no-same-owner
    rm -f "$2"
    ;;
  commit)
    git init -q .
    git remote add origin "$2"
    # Not every server gives a commit by its name: then everything is fetched.
    git fetch -q --depth 1 origin "$3" 2>/dev/null || git fetch -q --tags origin '+refs/heads/*:refs/remotes/origin/*'
    git checkout -q --detach "$3"
    ;;
esac
