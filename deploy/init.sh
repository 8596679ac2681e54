#!/usr/bin/env bash
# Writes .env for docker-compose.yml: .env.example with passwords of its own. An .env that is there is left as it is.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${1:-.env}

if [[ -e $target ]]; then
	printf 'init: %s is there, and stays as it is\n' "$target" >&2
	exit 0
fi
password() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
umask 077
new=$(mktemp "$target.XXXXXX")
trap 'rm -f "$new"' EXIT
while IFS= read -r line; do
	case $line in
	HINDSIGHT_*_PASSWORD=) printf '%s%s\n' "$line" "$(password)" ;;
	*) printf '%s\n' "$line" ;;
	esac
done <.env.example >"$new"
mv -n "$new" "$target"
printf 'init: wrote %s with new passwords; keep a copy of it with the backups\n' "$target" >&2
