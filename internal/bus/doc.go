// Package bus is Hindsight's use of NATS JetStream: the streams, one worker
// loop for every service, dead letters, leases and the key-value buckets.
//
// # What it guarantees
//
// A message that [Conn.Publish] or [Conn.PublishAll] has accepted is stored by
// the server. A message that a [Worker] took is acknowledged only after the
// handler has said so; until then a crash, a lost connection or a restart of
// the server only means that it is delivered again, so handlers must be
// idempotent. A message leaves its stream without success in one way only: as
// a dead letter, which the server has confirmed before the original goes.
// While something downstream is away ([Wait]) nothing becomes a dead letter.
// At most one process leads under a lease ([Conn.Lead]), as long as what it
// runs ends when its context does; the fence tells the record who came last.
//
// # What it never does
//
// It does not know what messages mean, nor of ClickHouse or Milvus. It does
// not order messages: workers run in parallel and retries come later. It keeps
// no queue in memory that is not bounded by its options.
package bus
