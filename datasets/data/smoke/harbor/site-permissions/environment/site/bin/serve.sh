#!/bin/sh
echo "serving $(dirname "$0")/../pages"
