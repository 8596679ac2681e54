// Package engine runs Hindsight's servers inside the process: NATS with
// JetStream (the nats-server library) and ClickHouse (libchdb.so, the real
// engine, opened without cgo). Both listen on the loopback interface with
// their ordinary protocols, so that everything else connects to them as it
// would to clusters.
//
// # What it guarantees
//
// One process holds a data directory: [LockDataDir] refuses a second one and
// names the first. An insert that ClickHouse has answered, and a message that
// NATS has acknowledged, is there after a restart and after kill -9 (of the
// process; not after a loss of power, for neither engine syncs each write).
// Nothing is written to standard output, and the Go runtime's signal handlers
// stay as they were. All times are UTC.
//
// # What it never does
//
// It never listens beyond the loopback interface: neither engine has users.
// Whoever can open a port on the loopback interface, which is every user of
// the machine, may read and write all that is stored. ClickHouse requests that
// a browser made for a web page, or that name another host, are refused, and
// file() reaches only the engine's own user_files directory; NATS speaks no
// protocol of browsers. It handles no signal and never ends the process.
package engine
