package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/bus"
	"github.com/hindsight-memory/hindsight/internal/config"
	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/engine"
	"github.com/hindsight-memory/hindsight/internal/store"
)

// Results of one check.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
)

// indexTimeout is how long the index may take to be compared.
const indexTimeout = time.Minute

// lowDisk is the free space under which the doctor warns: below it ClickHouse stops merging large parts.
const lowDisk = 1 << 30

// finding is one line of the doctor; it is the shape of `doctor --json`.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	// Advice says what to do when the result is not ok.
	Advice string `json:"advice,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "doctor",
		Short:   "Check settings, engines, servers and what is stored, and say what to do",
		Example: "  hindsight doctor\n  hindsight doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.reportFindings(a.diagnose(cmd.Context()))
		},
	}
}

func (a *app) reportFindings(findings []finding) error {
	failed := false
	for _, f := range findings {
		failed = failed || f.Result == checkFail
		if a.json {
			continue
		}
		a.printf("%-4s  %-14s %s\n", f.Result, f.Check, f.Detail)
		if f.Advice != "" {
			a.printf("      %-14s → %s\n", "", f.Advice)
		}
	}
	if a.json {
		if err := a.printJSON(findings); err != nil {
			return err
		}
	}
	if failed {
		return errReported
	}
	return nil
}

func (a *app) diagnose(ctx context.Context) []finding {
	out := []finding{a.checkSettings(), a.checkLibrary(), a.checkDataDir(), a.checkEmbedding(), a.checkModel(), a.checkMCP(ctx)}
	out = append(out, a.checkBus(ctx)...)
	out = append(out, a.checkStore(ctx)...)
	for _, f := range out {
		if f.Result == checkFail && (f.Check == "nats" || f.Check == "clickhouse") {
			return out // without the record there is nothing to compare an index with
		}
	}
	return append(out, a.checkIndex(ctx))
}

// checkIndex compares the vector index with the record.
func (a *app) checkIndex(ctx context.Context) (f finding) {
	f = finding{Check: "index", Result: checkOK}
	where := "in ClickHouse"
	if a.cfg.MilvusAddr != "" {
		where = "in Milvus at " + a.cfg.MilvusAddr
	}
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	parts, err := a.openParts(ctx)
	if err != nil {
		return finding{"index", checkWarn, oneLine(err.Error(), 200), "ask again"}
	}
	defer func() {
		if err := parts.Close(); err != nil && f.Result == checkOK {
			f = finding{"index", checkWarn, oneLine(err.Error(), 200), "ask again"}
		}
	}()
	state, err := parts.CheckIndex(ctx)
	wrong := state.Missing + state.Stale + state.Surplus
	switch {
	case errors.Is(err, embed.ErrNone):
		f.Detail = "not used: there is no embedding model"
	case errors.Is(err, store.ErrDenied), errors.Is(err, store.ErrDimension), errors.Is(err, store.ErrVersion), errors.Is(err, store.ErrNotMilvus), errors.Is(err, embed.ErrModelChanged):
		f.Result, f.Detail, f.Advice = checkFail, oneLine(err.Error(), 400), "no waiting helps: the message says what to change"
	case err != nil:
		f.Result, f.Detail = checkWarn, oneLine(err.Error(), 200)
		f.Advice = "questions are answered by words, rules and exact codes until it answers; nothing is lost, and what it misses is written then"
	case state.Model == "":
		f.Detail = "nothing was embedded yet"
	case wrong > 0:
		f.Result, f.Advice = checkWarn, "the job does so every 10 minutes; at once: 'hindsight consolidate consistency'"
		f.Detail = fmt.Sprintf("%s: of %d items %d are missing and %d not up to date, %d entries do not belong there", where, state.Items, state.Missing, state.Stale, state.Surplus)
	default:
		f.Detail = fmt.Sprintf("%s: holds all %d items of %s", where, state.Items, state.Model)
	}
	return f
}

func (a *app) checkEmbedding() finding {
	const withoutVectors = "questions are answered by words, rules and exact codes only"
	switch {
	case a.cfg.Embedder == "none":
		return finding{Check: "embedding", Result: checkOK, Detail: "switched off (HINDSIGHT_EMBEDDER=none): " + withoutVectors}
	case a.cfg.Embedder == "endpoint" || a.cfg.Embedder == "auto" && a.cfg.EmbeddingBaseURL != "":
		return finding{Check: "embedding", Result: checkOK, Detail: fmt.Sprintf("%s at %s", a.cfg.EmbeddingModel, events.MaskText(a.cfg.EmbeddingBaseURL))}
	}
	dir, err := embed.FindLocal(a.engineSetting)
	if err != nil {
		return finding{"embedding", checkWarn, oneLine(err.Error(), 200), "run 'make setup', or set HINDSIGHT_EMBEDDING_BASE_URL; until then " + withoutVectors}
	}
	return finding{Check: "embedding", Result: checkOK, Detail: "local model in " + dir}
}

func (a *app) checkModel() finding {
	switch {
	case a.cfg.LLMBaseURL == "":
		return finding{Check: "reflection", Result: checkOK, Detail: "by the evidence critic; HINDSIGHT_LLM_BASE_URL adds a model"}
	case a.cfg.ReflectionModel == "":
		return finding{"reflection", checkFail, "HINDSIGHT_LLM_BASE_URL is set and REFLECTION_MODEL is not", "name the model in REFLECTION_MODEL"}
	}
	return finding{Check: "reflection", Result: checkOK, Detail: fmt.Sprintf("by %s at %s", a.cfg.ReflectionModel, events.MaskText(a.cfg.LLMBaseURL))}
}

// checkMCP asks whether anything answers where agents will ask; what it answers to a bare request does not matter.
func (a *app) checkMCP(ctx context.Context) finding {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	address := a.cfg.MCPAddress()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return finding{"mcp", checkFail, fmt.Sprintf("%s is no address: %v", events.MaskText(address), err), "correct HINDSIGHT_MCP_URL"}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return finding{"mcp", checkWarn, "nothing answers at " + events.MaskText(address), "start 'hindsight up' or 'mcp': agents have no memory until then"}
	}
	if err := response.Body.Close(); err != nil {
		return finding{"mcp", checkWarn, oneLine(err.Error(), 200), "ask again"}
	}
	return finding{Check: "mcp", Result: checkOK, Detail: events.MaskText(address)}
}

func (a *app) checkSettings() finding {
	if unknown := config.Unknown(a.environ); len(unknown) > 0 {
		return finding{
			"settings", checkWarn, "not a setting: " + strings.Join(unknown, ", "),
			"perhaps misspelt; 'hindsight config' lists the settings",
		}
	}
	return finding{Check: "settings", Result: checkOK, Detail: "read; 'hindsight config' lists them"}
}

func (a *app) checkLibrary() finding {
	if a.cfg.ClickHouseURL != "" {
		return finding{Check: "engine", Result: checkOK, Detail: "not needed: HINDSIGHT_CLICKHOUSE_URL names a server"}
	}
	path, err := engine.FindChDB(a.engineSetting)
	if err != nil {
		return finding{"engine", checkFail, err.Error(), "run 'make setup', or set HINDSIGHT_CLICKHOUSE_URL"}
	}
	return finding{Check: "engine", Result: checkOK, Detail: path}
}

func (a *app) checkDataDir() finding {
	if a.cfg.NATSURL != "" && a.cfg.ClickHouseURL != "" {
		return finding{Check: "data", Result: checkOK, Detail: "not needed: NATS and ClickHouse are servers"}
	}
	dir := a.cfg.DataDir
	for { // Before the first start the folder is not there; what counts is the nearest one above.
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return finding{"data", checkFail, fmt.Sprintf("%s can't be written: %v", dir, err), "set HINDSIGHT_DATA_DIR to a folder that can"}
	}
	free, err := freeSpace(dir)
	if err != nil {
		return finding{"data", checkWarn, err.Error(), "see whether the disk is mounted"}
	}
	detail := fmt.Sprintf("%s, %d MB free", a.cfg.DataDir, free/1e6)
	switch {
	case free < watchRoom:
		return finding{"data", checkFail, detail, "the disk is full: nothing can be taken until there is room"}
	case free < lowDisk:
		return finding{"data", checkWarn, detail, "make room: ClickHouse needs space to merge"}
	}
	return finding{Check: "data", Result: checkOK, Detail: detail}
}

func (a *app) checkBus(ctx context.Context) []finding {
	conn, err := a.openBus(ctx)
	if err != nil {
		return []finding{{"nats", checkFail, err.Error(), "start 'hindsight up', or set HINDSIGHT_NATS_URL"}}
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	stats, err := conn.Stats(ctx)
	if err == nil {
		err = conn.Ready(ctx)
	}
	if err != nil {
		return []finding{{"nats", checkFail, err.Error(), "see whether JetStream is on and has room: 'hindsight up' sets the streams up"}}
	}
	out := []finding{{Check: "nats", Result: checkOK, Detail: "answers"}}
	for _, s := range stats {
		f := finding{Check: s.Stream, Result: checkOK, Detail: fmt.Sprintf("%d messages, %.1f MB", s.Messages, float64(s.Bytes)/1e6)}
		switch {
		case s.MaxBytes > 0 && float64(s.Bytes) > 0.8*float64(s.MaxBytes):
			f.Result, f.Advice = checkWarn, "the stream is over 80 % full: "+whyFull(s.Stream)
		case s.Stream != bus.StreamDeadLetter && s.Messages > 0 && idle(s):
			f.Result, f.Advice = checkWarn, "nothing takes these messages: start 'hindsight up', or "+workerOf(s.Stream)
		case s.Stream == bus.StreamDeadLetter && s.Messages > 0:
			f.Result, f.Advice = checkWarn, "see 'hindsight deadletter list'"
		}
		out = append(out, f)
	}
	return out
}

func (a *app) checkStore(ctx context.Context) []finding {
	st, err := a.openStore(ctx)
	if err != nil {
		return []finding{{"clickhouse", checkFail, err.Error(), "start 'hindsight up', or set HINDSIGHT_CLICKHOUSE_URL"}}
	}
	health, err := st.Health(ctx, "")
	if err = errors.Join(err, st.Close()); err != nil {
		return []finding{{"clickhouse", checkFail, err.Error(), "read the message; the server's log has more"}}
	}
	f := finding{Check: "clickhouse", Result: checkOK, Detail: fmt.Sprintf("%d events, %d tasks closed, %d open, %d dead letters ever",
		health.Events, health.TasksClosed, health.TasksOpen, health.DeadLetters)}
	if health.UnknownKinds > 0 {
		f.Result, f.Advice = checkWarn, fmt.Sprintf("%d events are of kinds this version does not know; they are stored raw. Is a producer newer than this program?", health.UnknownKinds)
	}
	return []finding{f}
}

// idle reports whether no worker asks for a stream's messages or has some in hand.
func idle(s bus.StreamStats) bool {
	for _, c := range s.Consumers {
		if c.Waiting > 0 || c.AckPending > 0 {
			return false
		}
	}
	return true
}

// workerOf is the program that takes a stream's messages.
func workerOf(stream string) string {
	if stream == bus.StreamTraces {
		return "'ingestor'"
	}
	return "'reflector'"
}

// whyFull says what to look at when a stream fills up.
func whyFull(stream string) string {
	switch stream {
	case bus.StreamTraces:
		return "is an ingestor running, and does ClickHouse take its inserts?"
	case bus.StreamReflect:
		return "no reflector takes its requests; tasks stay open while it is full"
	case bus.StreamDeadLetter:
		return "the oldest letters will go; see 'hindsight deadletter list'"
	default:
		return "whatever takes its messages does not keep up"
	}
}
