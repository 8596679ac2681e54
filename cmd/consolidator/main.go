// Command consolidator merges lessons that say the same and draws rules from what recurs. Several may run: one leads.
package main

import (
	"github.com/hindsight-memory/hindsight/cmd/internal/process"
	"github.com/hindsight-memory/hindsight/internal/service"
)

func main() {
	process.Program{
		Name:     "consolidator",
		Purpose:  "Merges lessons that say the same and draws rules from what recurs",
		Example:  "HINDSIGHT_NATS_URL=nats://nats:4222 HINDSIGHT_CLICKHOUSE_URL=http://clickhouse:8123 consolidator",
		Services: []service.Service{service.Consolidate},
	}.Main()
}
