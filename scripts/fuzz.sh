#!/usr/bin/env bash
# Runs every fuzz target of the module for a while or a number of times, one after the other: `scripts/fuzz.sh 10s`,
# `scripts/fuzz.sh 300x`.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
go list -f '{{.Dir}}' ./... | while read -r dir; do
  for name in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | sed 's/^func //' | sort -u); do
    echo "== ${dir#"$PWD"/} $name"
    (cd "$dir" && go test -run '^$' -fuzz "^${name}\$" -fuzztime "$time" -fuzzminimizetime 1x .)
  done
done
