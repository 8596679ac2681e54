package engine

import (
	"strings"

	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// helloQuery is what clickhouse-go asks a server first, over HTTP. It asks in
// the newest revision of the Native format that it knows and reads every
// later answer in the revision that this one reports.
const helloQuery = "SELECT displayName(), version(), revision(), timezone()"

func isHello(req *request) bool {
	return req.protocol > 0 && strings.EqualFold(req.format, "Native") && strings.TrimSpace(req.text) == helloQuery
}

// hello answers helloQuery. The library always writes revision 0 of the Native
// format, so that is what must be reported, in a block of the client's
// revision.
func (a *answer) hello(revision uint64, version string) error {
	block := proto.NewBlock()
	for _, c := range []struct {
		name, kind string
		value      any
	}{
		{"displayName()", "String", "hindsight"},
		{"version()", "String", version},
		{"revision()", "UInt32", uint32(0)},
		{"timezone()", "String", "UTC"},
	} {
		if err := block.AddColumn(c.name, column.Type(c.kind)); err != nil {
			return err
		}
		if err := block.Columns[len(block.Columns)-1].AppendRow(c.value); err != nil {
			return err
		}
	}
	var buffer chproto.Buffer
	if err := block.Encode(&buffer, revision); err != nil {
		return err
	}
	a.format = "Native"
	if err := a.write(buffer.Buf); err != nil {
		return err
	}
	return a.finish()
}
