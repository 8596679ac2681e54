#!/usr/bin/env bash
# Runs a real Milvus (standalone, embedded etcd, local files) on this machine, in the foreground, for development and
# tests. It is fetched first if need be (57 MB; 250 MB unpacked). Not for production: there, Milvus runs on its own
# machines, and HINDSIGHT_MILVUS_ADDR says where.
#
# usage: milvus.sh [--data DIR] [--port PORT] [--tick MILLISECONDS] [--bare]
#   --data   where it keeps its data; default: milvus in HINDSIGHT_DATA_DIR (~/.hindsight)
#   --port   where it answers, on 127.0.0.1; default: 19530. The 14 ports that follow are its own, the 14th for health
#            and metrics
#   --tick   how often it lets written rows become visible; default: 50
#   --bare   become the server, so that the process is the server's own; end it with SIGKILL
#
# Ctrl-C or SIGTERM ends it; the data stays.
set -euo pipefail
export LC_ALL=C

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
engines=${HINDSIGHT_ENGINES_DIR:-$root/.engines}
data=${HINDSIGHT_DATA_DIR:-$HOME/.hindsight}/milvus
port=19530
tick=50
bare=

fail() {
	printf 'milvus: %s\n' "$@" >&2
	exit 1
}

while (($#)); do
	if [[ $1 == --bare ]]; then
		bare=1
		shift
		continue
	fi
	(($# > 1)) || fail "$1 needs a value; see the top of $0"
	case $1 in
	--data) data=$2 ;;
	--port) port=$2 ;;
	--tick) tick=$2 ;;
	*) fail "unknown option $1; see the top of $0" ;;
	esac
	shift 2
done
[[ $port =~ ^[0-9]+$ && $tick =~ ^[0-9]+$ ]] || fail "--port and --tick take a number"
for ((p = port; p < port + 15; p++)); do
	# An open port answers; a free one refuses.
	if (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; then
		fail "port $p is taken, and Milvus needs $port to $((port + 14)): stop what listens there, or choose others with --port"
	fi
done

bash "$root/scripts/setup.sh" milvus

mkdir -p "$data/configs" "$data/logs" "$data/run"
data=$(cd "$data" && pwd)

# Only what differs from the server's own defaults. Every component gets its port, and embedded etcd a file of its own,
# because it does not take its ports from the server's settings.
cat >"$data/configs/milvus.yaml" <<YAML
etcd:
  endpoints: 127.0.0.1:$((port + 11))
  config:
    path: $data/configs/etcd.yaml
  rootPath: hindsight
  use:
    embed: true
  data:
    dir: $data/etcd
  log:
    level: warn
    path: $data/logs/etcd.log
localStorage:
  path: $data/files
minio:
  rootPath: files
mq:
  type: rocksmq
rocksmq:
  path: $data/rocksmq
common:
  storageType: local
  gracefulStopTimeout: 2
  session:
    ttl: 5
log:
  level: warn
  stdout: false
  file:
    rootPath: $data/logs
proxy:
  ip: 127.0.0.1
  port: $port
  internalPort: $((port + 1))
  timeTickInterval: $tick
rootCoord:
  ip: 127.0.0.1
  port: $((port + 2))
queryCoord:
  ip: 127.0.0.1
  port: $((port + 3))
  checkInterval: 200
  distPullInterval: 200
queryNode:
  ip: 127.0.0.1
  port: $((port + 4))
indexCoord:
  bindIndexNodeMode:
    address: 127.0.0.1:$((port + 5))
indexNode:
  ip: 127.0.0.1
  port: $((port + 6))
dataCoord:
  ip: 127.0.0.1
  port: $((port + 7))
dataNode:
  ip: 127.0.0.1
  port: $((port + 8))
YAML
# Its C++ part aborts without this file.
cat >"$data/configs/glog.conf" <<CONF
--logtostderr=false
--minloglevel=1
--log_dir=$data/logs
--max_log_size=10
CONF
cat >"$data/configs/etcd.yaml" <<YAML
name: default
log-level: warn
log-outputs: [$data/logs/etcd.log]
listen-client-urls: http://127.0.0.1:$((port + 11))
advertise-client-urls: http://127.0.0.1:$((port + 11))
listen-peer-urls: http://127.0.0.1:$((port + 12))
initial-advertise-peer-urls: http://127.0.0.1:$((port + 12))
initial-cluster: default=http://127.0.0.1:$((port + 12))
YAML

printf 'milvus: answers at 127.0.0.1:%d in a few seconds (health: http://127.0.0.1:%d/healthz), data in %s\n' "$port" "$((port + 14))" "$data" >&2
printf 'milvus: to use it: HINDSIGHT_MILVUS_ADDR=127.0.0.1:%d\n' "$port" >&2
cd "$data"
export METRICS_PORT=$((port + 14)) DEPLOY_MODE=STANDALONE MILVUS_RUN_DIR=$data/run
export LD_LIBRARY_PATH=$engines/milvus/bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
server=("$engines/milvus/bin/milvus" run standalone -alias "$port")
[[ -z $bare ]] || exec "${server[@]}" >>"$data/logs/out.log" 2>&1

# Its own graceful end may wait for itself for ever. What was acknowledged survives being killed.
end() {
	kill -TERM "$pid" 2>/dev/null || true
	for ((i = 0; i < 30; i++)); do
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$pid" 2>/dev/null || true
}
setsid "${server[@]}" >>"$data/logs/out.log" 2>&1 &
pid=$!
trap 'end; trap - EXIT; exit 0' INT TERM
trap end EXIT
wait "$pid" || fail "the server ended by itself; the last it said (all of it is in $data/logs):" "$(tail -n 5 "$data/logs/out.log" | cut -c 1-500)"
