// Command ingestor writes trace events from NATS JetStream to ClickHouse and closes tasks. Any number may run at once.
package main

import (
	"github.com/hindsight-memory/hindsight/cmd/internal/process"
	"github.com/hindsight-memory/hindsight/internal/service"
)

func main() {
	process.Program{
		Name:     "ingestor",
		Purpose:  "Writes trace events from NATS to ClickHouse and closes tasks",
		Example:  "HINDSIGHT_NATS_URL=nats://nats:4222 HINDSIGHT_CLICKHOUSE_URL=http://clickhouse:8123 ingestor",
		Services: []service.Service{service.Ingest},
	}.Main()
}
