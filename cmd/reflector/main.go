// Command reflector turns closed tasks into decision snapshots and memories, and stores what agents write. Any number
// may run at once.
package main

import (
	"github.com/hindsight-memory/hindsight/cmd/internal/process"
	"github.com/hindsight-memory/hindsight/internal/service"
)

func main() {
	process.Program{
		Name:     "reflector",
		Purpose:  "Turns closed tasks into snapshots and memories, and stores what agents write",
		Example:  "HINDSIGHT_NATS_URL=nats://nats:4222 HINDSIGHT_CLICKHOUSE_URL=http://clickhouse:8123 reflector",
		Services: []service.Service{service.Reflect},
	}.Main()
}
