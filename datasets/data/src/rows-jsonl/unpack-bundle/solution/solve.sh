#!/bin/sh
set -eu
export LC_ALL=C
cd /workspace
mkdir -p unpacked quarantine
tar -xzf incoming/bundle.tar.gz -C unpacked --no-same-owner
cd unpacked
mv SHA256SUMS ../sums

find . -type f | sed 's|^\./||' | while IFS= read -r file; do
    # A line of sha256sum is the sum, two blanks and the name.
    if ! grep -qxF "$(sha256sum < "$file" | cut -d ' ' -f 1)  $file" ../sums; then
        mkdir -p "../quarantine/$(dirname "$file")"
        mv "$file" "../quarantine/$file"
    fi
done

find . -type f | sed 's|^\./||' | sort | while IFS= read -r file; do
    echo "$(wc -c < "$file" | tr -d ' ') $file"
done > ../index.txt
rm ../sums
