// Package store is the ClickHouse repository: the system of record for trace events, tasks and everything that is
// concluded from them. Its tables are those of package schema.
//
// It guarantees that writing the same thing again changes nothing that a reader sees, that an error is one of the few
// below (test with errors.Is) and never a driver's own, that arguments are not kept after a call, and that nothing is
// read across namespaces unless the caller leaves the namespace open on purpose. All times are UTC, in milliseconds.
// A [ClickHouse] is safe for concurrent use.
//
// It never decides anything: what a task is, is said by package memory. It never deletes.
package store
