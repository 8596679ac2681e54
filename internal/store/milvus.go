package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	grpcretry "github.com/grpc-ecosystem/go-grpc-middleware/retry"
	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/stranger"
)

// This file is the only one that knows Milvus or its SDK: the SDK's successor does not live beside it in one program, so
// that changing over has to be a change of this file.

var _ memory.VectorIndex = (*Milvus)(nil)

// ErrNotMilvus means that something else than Milvus answers at its address. No waiting helps.
var ErrNotMilvus = errors.New("this is not Milvus")

const (
	// MinMilvusVersion is the oldest server that has what the collection needs: arrays and COSINE.
	MinMilvusVersion = "2.3"
	// DefaultMilvusPrefix is what names of collections begin with when [MilvusOptions.Prefix] says nothing.
	DefaultMilvusPrefix = "hindsight"

	defaultMilvusTimeout = 30 * time.Second
	// loadTimeout bounds making and loading a collection, which a server with many of them does one after another.
	loadTimeout = 3 * time.Minute
	// milvusMost is the largest number of hits or rows that the server gives at once.
	milvusMost = 16384
	// rowsPerWrite and bytesPerWrite bound one request; the server takes 64 MiB.
	rowsPerWrite  = 1000
	bytesPerWrite = 16 << 20
	// hnswM and hnswBuild are how the graph is built, hnswSearch how many entries a search looks at, at least.
	hnswM, hnswBuild, hnswSearch = 16, 200, 128
	// longestText and mostTools are the server's own limits, the other texts are ids and words of ours.
	longestText, longestID, longestTool, longestName = 65535, 1024, 4096, 64
	mostTools                                        = 4096
)

// Names of the fields of a collection.
const (
	fieldKey       = "pk"
	fieldID        = "id"
	fieldNamespace = "namespace"
	fieldLayer     = "layer"
	fieldTaskType  = "task_type"
	fieldTools     = "tools"
	fieldErrorType = "error_type"
	fieldOutcome   = "outcome"
	fieldTrust     = "trust"
	fieldStatus    = "status"
	fieldCreatedAt = "created_at"
	fieldTextHash  = "text_hash"
	fieldVector    = "vector"
)

// MilvusOptions says which Milvus to use.
type MilvusOptions struct {
	// Address is host:port.
	Address string
	// Token is user:password, or an API key; empty for a server that asks for none.
	Token string
	// TLS encrypts the connection; the server's certificate is checked against the system's authorities.
	TLS bool
	// Prefix is what the names of collections begin with, of a-z, 0-9 and _. Default: [DefaultMilvusPrefix].
	Prefix string
	// Timeout bounds each request whose context has no earlier deadline. Default: 30 seconds.
	Timeout time.Duration
}

// Milvus is the vector index in a Milvus server: a collection for each model. Use [OpenMilvus]; it is safe for
// concurrent use.
//
// Entries are replaced by the server's own upsert, by a key that is made of namespace and id, so that writing the same
// again changes nothing and two writers of one entry leave one. A write returns once a read has seen it; searches
// themselves do not wait for anything (consistency "bounded").
type Milvus struct {
	client  client.Client
	address string
	tls     bool
	prefix  string
	timeout time.Duration

	mu         sync.Mutex
	collection string // empty: not prepared
	dimension  int
}

// OpenMilvus checks the options and prepares a connection. It does not connect: the server may come later; [Milvus.Ping]
// asks whether it is there.
func OpenMilvus(opts MilvusOptions) (*Milvus, error) {
	host, port, err := net.SplitHostPort(opts.Address)
	if err != nil || host == "" || port == "" || strings.ContainsAny(opts.Address, "/@") {
		return nil, fmt.Errorf("%w: the address of Milvus is %q: it must be host:port, for example 127.0.0.1:19530", ErrOptions, opts.Address)
	}
	m := &Milvus{
		address: opts.Address, tls: opts.TLS, prefix: cmp.Or(opts.Prefix, DefaultMilvusPrefix), timeout: cmp.Or(opts.Timeout, defaultMilvusTimeout),
	}
	if strings.Trim(m.prefix, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || m.prefix[0] < 'a' || len(m.prefix) > 64 {
		return nil, fmt.Errorf("%w: the prefix of Milvus collections is %q: it must be 1 to 64 of a-z, 0-9 and _, beginning with a letter", ErrOptions, m.prefix)
	}
	if m.timeout < 0 {
		return nil, fmt.Errorf("%w: timeout must not be negative", ErrOptions)
	}
	m.client, err = client.NewClient(context.Background(), client.Config{
		Address: opts.Address, APIKey: opts.Token, EnableTLSAuth: opts.TLS,
		DisableConn: true, // Nothing is asked until it is needed.
		// Retrying is ours, with an end: the SDK would go on for half a minute, and 75 times when it is told to slow down.
		RetryRateLimit: &client.RetryRateLimitOption{},
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(statusError),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpcretry.Disable()),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
				MinConnectTimeout: 3 * time.Second,
			}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: Milvus: %s", ErrOptions, err.Error())
	}
	return m, nil
}

// Close ends the connection. Running calls fail.
func (m *Milvus) Close() error {
	if err := m.client.Close(); err != nil {
		return fmt.Errorf("close the connection to Milvus: %s", err.Error())
	}
	return nil
}

// milvusError is what a server says in the status of an answer.
type milvusError struct {
	code   int32 // the server's, since 2.3
	legacy commonpb.ErrorCode
	reason string
}

func (e *milvusError) Error() string {
	return fmt.Sprintf("Milvus says: code %d: %s", cmp.Or(e.code, int32(e.legacy)), shorten(e.reason))
}

// statusError makes an error of every answer that says one. The SDK looks at the old field of the status only, which
// newer errors leave at success.
func statusError(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}
	said, is := reply.(*commonpb.Status)
	if holder, has := reply.(interface{ GetStatus() *commonpb.Status }); has {
		said, is = holder.GetStatus(), true
	}
	if !is || (said.GetCode() == 0 && said.GetErrorCode() == commonpb.ErrorCode_Success) { //nolint:staticcheck // Old servers say only this.
		return nil
	}
	return &milvusError{code: said.GetCode(), legacy: said.GetErrorCode(), reason: said.GetReason()} //nolint:staticcheck // As above.
}

// Codes of Milvus that matter here; the names are the server's.
const (
	codeNotReady           = 1
	codeRateLimit          = 8
	codeCollectionNotFound = 100
	codeNotLoaded          = 101
	codeNotFullyLoaded     = 103
	codeParameters         = 1100 // to 1199: what was asked is wrong
	codeParametersEnd      = 1199
)

// passing reports whether the server is only not yet able: it starts, loads, or asks for patience. Texts count as well,
// since a server passes on errors of its parts under a code that says nothing.
func passing(err error) bool {
	said, is := errors.AsType[*milvusError](err)
	if !is {
		return false
	}
	switch said.code {
	case codeNotReady, codeRateLimit, codeNotLoaded, codeNotFullyLoaded:
		return true
	}
	for _, text := range []string{"not loaded", "not fully loaded", "not ready", "not available", "no available", "not healthy", "node offline", "not found in target", "distribution is not serviceable"} {
		if strings.Contains(said.reason, text) {
			return true
		}
	}
	return false
}

// translate turns an error of the SDK into one of ours. ctx is the caller's. Whatever is not clearly the fault of the
// data counts as [ErrUnavailable].
func (m *Milvus) translate(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	if said, is := errors.AsType[*milvusError](err); is {
		switch {
		case said.code >= codeParameters && said.code <= codeParametersEnd, said.code == 0 && said.legacy == commonpb.ErrorCode_IllegalArgument:
			return fmt.Errorf("%s: %w: %w", doing, ErrRejected, said)
		case said.code == codeCollectionNotFound:
			return fmt.Errorf("%s: %w: the collection is gone: restart to make it again, then `hindsight reindex` to fill it: %w", doing, ErrUnavailable, said)
		case said.legacy == commonpb.ErrorCode_PermissionDenied:
			return m.denied(doing, said)
		}
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, said)
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return m.denied(doing, err)
	case codes.Unimplemented:
		return fmt.Errorf("%s: %w: the server at %s does not know this request: Milvus %s or later is needed: %s", doing, ErrVersion, m.address, MinMilvusVersion, shorten(status.Convert(err).Message()))
	case codes.Unavailable:
		return fmt.Errorf("%s: %w: Milvus at %s cannot be reached: %s", doing, ErrUnavailable, m.address, shorten(status.Convert(err).Message()))
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: %w: Milvus at %s did not answer in time", doing, ErrUnavailable, m.address)
	default:
		return fmt.Errorf("%s: %w: %s", doing, ErrUnavailable, shorten(err.Error()))
	}
}

func (m *Milvus) denied(doing string, err error) error {
	text := err.Error()
	if s, is := status.FromError(err); is {
		text = s.Message()
	}
	return fmt.Errorf("%s: %w: %w: Milvus at %s does not let us in: set HINDSIGHT_MILVUS_TOKEN to user:password or an API key that may use it: %s",
		doing, ErrUnavailable, ErrDenied, m.address, shorten(text))
}

// call runs a request within the bound, again while the server is only not yet able.
func (m *Milvus) call(ctx context.Context, timeout time.Duration, doing string, request func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const first, longest = 50 * time.Millisecond, time.Second
	for pause := first; ; pause = min(2*pause, longest) {
		err := request(bounded)
		if !passing(err) || sleep(bounded, pause/2+rand.N(pause/2)) != nil { //nolint:gosec // Jitter needs no secrecy.
			return m.translate(ctx, doing, err)
		}
	}
}

var milvusVersion = regexp.MustCompile(`(\d+)\.(\d+)(?:\.\d+)?`)

// parseMilvusVersion reads what servers say: "v2.3.5-lite", "2.5.0", or a sentence with the version in it.
func parseMilvusVersion(said string) (major, minor int, ok bool) {
	found := milvusVersion.FindStringSubmatch(said)
	if found == nil {
		return 0, 0, false
	}
	major, errMajor := strconv.Atoi(found[1])
	minor, errMinor := strconv.Atoi(found[2])
	return major, minor, errMajor == nil && errMinor == nil
}

// upsertsByPartition reports whether a server of this version puts what is upserted into the right partition when there
// is a partition key. Those of 2.3 lose rows.
func upsertsByPartition(major, minor int) bool { return major > 2 || (major == 2 && minor >= 4) }

// version asks the server. The error is [ErrUnavailable], [ErrDenied], [ErrVersion] or [ErrNotMilvus].
func (m *Milvus) version(ctx context.Context) (major, minor int, err error) {
	var said string
	err = m.call(ctx, readyTimeout, "ask Milvus for its version", func(ctx context.Context) error {
		var err error
		said, err = m.client.GetVersion(ctx)
		return err
	})
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, ErrDenied) {
			if answer := stranger.At(ctx, m.address); answer.Kind != stranger.Unknown && answer.Kind != stranger.HTTP2 && (answer.Kind != stranger.TLS || !m.tls) {
				return 0, 0, fmt.Errorf("%w: at %s answers %s: HINDSIGHT_MILVUS_ADDR names the wrong host or port, or HINDSIGHT_MILVUS_TLS is wrong; Milvus answers at 19530 where nothing else was set", ErrNotMilvus, m.address, answer.Words)
			}
		}
		return 0, 0, err
	}
	major, minor, ok := parseMilvusVersion(said)
	oldestMajor, oldestMinor, _ := parseMilvusVersion(MinMilvusVersion)
	switch {
	case !ok:
		return 0, 0, fmt.Errorf("%w: the server at %s says that it is Milvus %q, which is no version that we can compare: use a release, %s or later", ErrVersion, m.address, said, MinMilvusVersion)
	case major < oldestMajor || (major == oldestMajor && minor < oldestMinor):
		return 0, 0, fmt.Errorf("%w: the server at %s is Milvus %s, but %s or later is needed: upgrade it", ErrVersion, m.address, said, MinMilvusVersion)
	}
	return major, minor, nil
}

// Ping asks the server who it is. The error is [ErrUnavailable], [ErrDenied], [ErrVersion] or [ErrNotMilvus].
func (m *Milvus) Ping(ctx context.Context) error {
	if _, _, err := m.version(ctx); err != nil {
		return err
	}
	// Its version it tells everyone.
	return m.call(ctx, readyTimeout, "ask Milvus for its collections", func(ctx context.Context) error {
		_, err := m.client.HasCollection(ctx, m.prefix)
		return err
	})
}

// collectionNames are the name of a model's collection, and what it begins with whatever the dimension. The hash keeps
// models apart whose names differ in what a collection's name cannot hold.
func (m *Milvus) collectionNames(model string, dimension int) (name, begin string) {
	const longest = 48
	slug := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(model), "_"), "_")
	sum := sha256.Sum256([]byte(model))
	begin = m.prefix + "_" + strings.Trim(slug[:min(len(slug), longest)], "_") + "_" + hex.EncodeToString(sum[:4]) + "_d"
	return begin + strconv.Itoa(dimension), begin
}

// Prepare makes and loads the collection of a model if need be and uses it from then on. The error is [ErrDimension] when
// there is a collection of the model with another dimension, and [ErrVersion] when the server is too old.
func (m *Milvus) Prepare(ctx context.Context, model string, dimension int) error {
	if model == "" || dimension < 2 || dimension > 32768 {
		return fmt.Errorf("%w: prepare the vector index: model %q with %d dimensions: Milvus takes 2 to 32768", ErrOptions, model, dimension)
	}
	major, minor, err := m.version(ctx)
	if err != nil {
		return err
	}
	name, begin := m.collectionNames(model, dimension)
	var have []*entity.Collection
	err = m.call(ctx, m.timeout, "list the collections of Milvus", func(ctx context.Context) error {
		have, err = m.client.ListCollections(ctx)
		return err
	})
	if err != nil {
		return err
	}
	exists := false
	for _, c := range have {
		other, is := strings.CutPrefix(c.Name, begin)
		if _, err := strconv.Atoi(other); !is || err != nil {
			continue
		}
		if c.Name != name {
			return fmt.Errorf("%w: the vectors of this model have %d dimensions now, but its index (collection %s) is of %s. "+
				"The model behind the name was changed: give the new one another name, or run `hindsight reindex` after dropping that collection",
				ErrDimension, dimension, c.Name, other)
		}
		exists = true
	}
	if !exists {
		if err := m.create(ctx, name, model, dimension, upsertsByPartition(major, minor)); err != nil {
			return err
		}
	}
	if err := m.check(ctx, name, dimension, upsertsByPartition(major, minor)); err != nil {
		return err
	}
	if err := m.load(ctx, name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.collection, m.dimension = name, dimension
	return nil
}

func text(name string, longest int64) *entity.Field {
	return entity.NewField().WithName(name).WithDataType(entity.FieldTypeVarChar).WithMaxLength(longest)
}

func (m *Milvus) create(ctx context.Context, name, model string, dimension int, partitioned bool) error {
	namespace := text(fieldNamespace, longestID)
	if partitioned {
		namespace = namespace.WithIsPartitionKey(true)
	}
	fields := []*entity.Field{
		text(fieldKey, longestName).WithIsPrimaryKey(true),
		namespace,
		text(fieldID, longestID),
		text(fieldLayer, longestName),
		text(fieldTaskType, longestText),
		entity.NewField().WithName(fieldTools).WithDataType(entity.FieldTypeArray).WithElementType(entity.FieldTypeVarChar).WithMaxLength(longestTool).WithMaxCapacity(mostTools),
		text(fieldErrorType, longestText),
		text(fieldOutcome, longestText),
		text(fieldTrust, longestName),
		text(fieldStatus, longestName),
		entity.NewField().WithName(fieldCreatedAt).WithDataType(entity.FieldTypeInt64),
		text(fieldTextHash, longestID),
		entity.NewField().WithName(fieldVector).WithDataType(entity.FieldTypeFloatVector).WithDim(int64(dimension)),
	}
	description := fmt.Sprintf("Vectors of %s, %d dimensions", model, dimension)
	schema := entity.NewSchema().WithName(name).WithDescription(description[:min(len(description), 1024)])
	for _, f := range fields {
		schema = schema.WithField(f)
	}
	err := m.call(ctx, loadTimeout, "create collection "+name, func(ctx context.Context) error {
		return m.client.CreateCollection(ctx, schema, 1, client.WithConsistencyLevel(entity.ClBounded))
	})
	if err != nil {
		// Another process may have been first.
		var exists bool
		if again := m.call(ctx, m.timeout, "look for collection "+name, func(ctx context.Context) error {
			var err error
			exists, err = m.client.HasCollection(ctx, name)
			return err
		}); again != nil || !exists {
			return err
		}
	}
	return nil
}

// check makes the index if need be, and refuses a collection that this server would lose rows of.
func (m *Milvus) check(ctx context.Context, name string, dimension int, partitioned bool) error {
	var have *entity.Collection
	err := m.call(ctx, m.timeout, "look at collection "+name, func(ctx context.Context) error {
		var err error
		have, err = m.client.DescribeCollection(ctx, name)
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range have.Schema.Fields {
		if f.IsPartitionKey && !partitioned {
			return fmt.Errorf("%w: collection %s was made on a newer Milvus, with a partition key, and this version loses rows when it replaces them there: upgrade the server, or drop the collection and run `hindsight reindex`", ErrVersion, name)
		}
		if f.Name == fieldVector && f.TypeParams[entity.TypeParamDim] != strconv.Itoa(dimension) {
			return fmt.Errorf("%w: collection %s has %s dimensions, whatever its name says: drop it and run `hindsight reindex`", ErrDimension, name, f.TypeParams[entity.TypeParamDim])
		}
	}
	graph, err := entity.NewIndexHNSW(entity.COSINE, hnswM, hnswBuild)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrOptions, err.Error())
	}
	// Under its default name: the same again changes nothing. It is built in the background.
	return m.call(ctx, loadTimeout, "index collection "+name, func(ctx context.Context) error {
		return m.client.CreateIndex(ctx, name, fieldVector, graph, true)
	})
}

// load makes the collection searchable, which takes the server some seconds.
func (m *Milvus) load(ctx context.Context, name string) error {
	return m.call(ctx, loadTimeout, "load collection "+name, func(ctx context.Context) error {
		return m.client.LoadCollection(ctx, name, false)
	})
}

// prepared tells which collection to use.
func (m *Milvus) prepared() (collection string, dimension int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.collection == "" {
		return "", 0, ErrNotPrepared
	}
	return m.collection, m.dimension, nil
}

func milvusFits(collection string, dimension int, vector []float32) string {
	if len(vector) != dimension {
		return fmt.Sprintf("its vector has %d dimensions, the index (collection %s) %d: it is of another model than the one that the index was prepared for; restart with the model that made it, or run `hindsight reindex`",
			len(vector), collection, dimension)
	}
	return badVector(vector)
}

// milvusRow says why an entry cannot be a row, or nothing.
func milvusRow(e memory.IndexEntry) string {
	if e.Namespace == "" || e.ID == "" {
		return "namespace and id must not be empty: they are its key"
	}
	for _, f := range []struct {
		name, text string
		longest    int
	}{
		{"namespace", e.Namespace, longestID},
		{"id", e.ID, longestID},
		{"layer", string(e.Layer), longestName},
		{"task type", e.TaskType, longestText},
		{"error type", e.ErrorType, longestText},
		{"outcome", e.Outcome, longestText},
		{"trust", string(e.Trust), longestName},
		{"status", string(e.Status), longestName},
		{"text hash", e.TextHash, longestID},
	} {
		if len(f.text) > f.longest {
			return fmt.Sprintf("its %s has %d bytes, Milvus takes %d", f.name, len(f.text), f.longest)
		}
	}
	if len(e.Tools) > mostTools {
		return fmt.Sprintf("it has %d tools, Milvus takes %d", len(e.Tools), mostTools)
	}
	for _, tool := range e.Tools {
		if len(tool) > longestTool {
			return fmt.Sprintf("one of its tools has %d bytes, Milvus takes %d", len(tool), longestTool)
		}
	}
	return unstorable(e.CreatedAt)
}

// Upsert writes entries; the last one of an id counts. They can be found once it has returned. The error is a
// [RowError] for an entry that cannot be stored, an [ErrDimension] as well when its dimension is wrong; then nothing was
// stored.
func (m *Milvus) Upsert(ctx context.Context, entries []memory.IndexEntry) error {
	collection, dimension, err := m.prepared()
	if err != nil {
		return err
	}
	last := make(map[string]int, len(entries))
	keys := make([]string, len(entries))
	for i, e := range entries {
		if reason := milvusRow(e); reason != "" {
			return &RowError{Index: i, ID: e.ID, Reason: reason}
		}
		if reason := milvusFits(collection, dimension, e.Vector); reason != "" {
			err := &RowError{Index: i, ID: e.ID, Reason: reason}
			if len(e.Vector) != dimension {
				return fmt.Errorf("%w: %w", ErrDimension, err)
			}
			return err
		}
		keys[i] = memory.HashID(e.Namespace, e.ID)
		last[keys[i]] = i
	}
	rows := make([]memory.IndexEntry, 0, len(last))
	for i, e := range entries {
		if last[keys[i]] == i {
			rows = append(rows, e)
		}
	}
	for chunk := range slices.Chunk(rows, max(1, min(rowsPerWrite, bytesPerWrite/(4*dimension)))) {
		columns := milvusColumns(chunk, dimension)
		err := m.call(ctx, m.timeout, "write to collection "+collection, func(ctx context.Context) error {
			_, err := m.client.Upsert(ctx, collection, "", columns...)
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return m.settle(ctx, collection)
}

func milvusColumns(rows []memory.IndexEntry, dimension int) []entity.Column {
	texts := map[string][]string{}
	tools, created, vectors := make([][][]byte, len(rows)), make([]int64, len(rows)), make([][]float32, len(rows))
	for i, e := range rows {
		for name, value := range map[string]string{
			fieldKey: memory.HashID(e.Namespace, e.ID), fieldID: e.ID, fieldNamespace: e.Namespace, fieldLayer: string(e.Layer), fieldTaskType: e.TaskType,
			fieldErrorType: e.ErrorType, fieldOutcome: e.Outcome, fieldTrust: string(e.Trust), fieldStatus: string(e.Status), fieldTextHash: e.TextHash,
		} {
			texts[name] = append(texts[name], valid(value))
		}
		tools[i] = make([][]byte, len(e.Tools))
		for t, tool := range e.Tools {
			tools[i][t] = []byte(valid(tool))
		}
		created[i], vectors[i] = e.CreatedAt.UnixMilli(), e.Vector
	}
	columns := []entity.Column{
		entity.NewColumnVarCharArray(fieldTools, tools), entity.NewColumnInt64(fieldCreatedAt, created), entity.NewColumnFloatVector(fieldVector, dimension, vectors),
	}
	for name, values := range texts {
		columns = append(columns, entity.NewColumnVarChar(name, values))
	}
	return columns
}

// valid is a text as the server's protocol can carry it, the same when it is written and when it is asked for.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// settle waits until what has been written to the collection can be read, by a read that demands everything up to now.
// It costs one tick of the server's clock, 200 ms where nothing else is set. The time stamp of the write itself would do
// for an upsert, but servers give none for a deletion.
func (m *Milvus) settle(ctx context.Context, collection string) error {
	return m.call(ctx, m.timeout, "wait for what was written to collection "+collection, func(ctx context.Context) error {
		_, err := m.client.Query(ctx, collection, nil, fieldKey+` == ""`, []string{fieldKey}, client.WithSearchQueryConsistencyLevel(entity.ClStrong), client.WithLimit(1))
		return err
	})
}

// literal is a text in an expression.
func literal(s string) string { return strconv.Quote(valid(s)) }

func literals[S ~string](list []S) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = literal(string(s))
	}
	return "[" + strings.Join(quoted, ",") + "]"
}

// Delete removes entries. They cannot be found once it has returned.
func (m *Milvus) Delete(ctx context.Context, namespace string, ids []string) error {
	collection, _, err := m.prepared()
	if err != nil {
		return err
	}
	if namespace == "" {
		return ErrNamespace
	}
	for chunk := range slices.Chunk(ids, rowsPerWrite) {
		keys := make([]string, len(chunk))
		for i, id := range chunk {
			keys[i] = memory.HashID(namespace, id)
		}
		err := m.call(ctx, m.timeout, "delete from collection "+collection, func(ctx context.Context) error {
			return m.client.Delete(ctx, collection, "", fieldKey+" in "+literals(keys))
		})
		if err != nil {
			return err
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return m.settle(ctx, collection)
}

func milvusExpression(q memory.VectorQuery) string {
	conditions := []string{fieldNamespace + " == " + literal(q.Namespace)}
	if len(q.Layers) > 0 {
		conditions = append(conditions, fieldLayer+" in "+literals(q.Layers))
	}
	if q.TaskType != "" {
		conditions = append(conditions, fieldTaskType+" == "+literal(q.TaskType))
	}
	if q.Tool != "" {
		conditions = append(conditions, "array_contains("+fieldTools+", "+literal(q.Tool)+")")
	}
	if len(q.Statuses) > 0 {
		conditions = append(conditions, fieldStatus+" in "+literals(q.Statuses))
	}
	return strings.Join(conditions, " and ")
}

// Search returns the nearest entries, the nearest first, those of equal score by id. Scores are cosines, below 0 for what
// points away. Among many entries it finds nearly all of the nearest, not surely all.
func (m *Milvus) Search(ctx context.Context, q memory.VectorQuery) ([]memory.Candidate, error) {
	collection, dimension, err := m.prepared()
	if err != nil {
		return nil, err
	}
	if q.Namespace == "" {
		return nil, ErrNamespace
	}
	if q.Limit < 1 || q.Limit > milvusMost {
		return nil, fmt.Errorf("%w: search vectors: limit %d: it must be 1 to %d", ErrOptions, q.Limit, milvusMost)
	}
	if reason := milvusFits(collection, dimension, q.Vector); reason != "" {
		if len(q.Vector) != dimension {
			return nil, fmt.Errorf("%w: search vectors: %s", ErrDimension, reason)
		}
		return nil, fmt.Errorf("%w: search vectors: %s", ErrRejected, reason)
	}
	return m.search(ctx, m.timeout, collection, q, entity.ClBounded)
}

func (m *Milvus) search(ctx context.Context, timeout time.Duration, collection string, q memory.VectorQuery, level entity.ConsistencyLevel) ([]memory.Candidate, error) {
	params, err := entity.NewIndexHNSWSearchParam(max(hnswSearch, q.Limit))
	if err != nil {
		return nil, fmt.Errorf("%w: search vectors: %s", ErrOptions, err.Error())
	}
	var answer []client.SearchResult
	err = m.call(ctx, timeout, "search collection "+collection, func(ctx context.Context) error {
		var err error
		answer, err = m.client.Search(ctx, collection, nil, milvusExpression(q), []string{fieldID, fieldLayer}, []entity.Vector{entity.FloatVector(q.Vector)},
			fieldVector, entity.COSINE, q.Limit, params, client.WithSearchQueryConsistencyLevel(level))
		return err
	})
	if err != nil {
		return nil, err
	}
	found := []memory.Candidate{}
	for _, result := range answer {
		if result.ResultCount == 0 {
			continue // The SDK cannot read that there is nothing.
		}
		if result.Err != nil {
			return nil, fmt.Errorf("search collection %s: %w: read the answer: %s", collection, ErrUnavailable, result.Err.Error())
		}
		for i := range result.ResultCount {
			id, idErr := result.Fields.GetColumn(fieldID).GetAsString(i)
			layer, layerErr := result.Fields.GetColumn(fieldLayer).GetAsString(i)
			if err := errors.Join(idErr, layerErr); err != nil {
				return nil, fmt.Errorf("search collection %s: %w: read the answer: %s", collection, ErrUnavailable, err.Error())
			}
			found = append(found, memory.Candidate{ID: id, Layer: memory.Layer(layer), Score: min(max(float64(result.Scores[i]), -1), 1)})
		}
	}
	slices.SortStableFunc(found, func(a, b memory.Candidate) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.ID, b.ID))
	})
	return found, nil
}

// TextHashes returns the text hash of every entry of a namespace, however many they are.
func (m *Milvus) TextHashes(ctx context.Context, namespace string) (map[string]string, error) {
	collection, _, err := m.prepared()
	if err != nil {
		return nil, err
	}
	if namespace == "" {
		return nil, ErrNamespace
	}
	doing := "read text hashes of collection " + collection
	// One page after another in the order of keys, as the server gives no more at once.
	options := client.NewQueryIteratorOption(collection).WithExpr(fieldNamespace+" == "+literal(namespace)).
		WithOutputFields(fieldKey, fieldID, fieldTextHash).WithBatchSize(milvusMost)
	var pages *client.QueryIterator
	err = m.call(ctx, m.timeout, doing, func(ctx context.Context) error {
		var err error
		pages, err = m.client.QueryIterator(ctx, options)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for {
		var page client.ResultSet
		end := false
		err := m.call(ctx, m.timeout, doing, func(ctx context.Context) error {
			var err error
			page, err = pages.Next(ctx)
			if end = errors.Is(err, io.EOF); end {
				return nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if end {
			return out, nil
		}
		for i := range page.Len() {
			id, idErr := page.GetColumn(fieldID).GetAsString(i)
			hash, hashErr := page.GetColumn(fieldTextHash).GetAsString(i)
			if err := errors.Join(idErr, hashErr); err != nil {
				return nil, fmt.Errorf("%s: %w: read the answer: %s", doing, ErrUnavailable, err.Error())
			}
			out[id] = hash
		}
	}
}

// Ready checks that a vector can be searched, and that what is written would become visible: after a restart the server
// says that it is healthy some seconds before that.
func (m *Milvus) Ready(ctx context.Context) error {
	collection, dimension, err := m.prepared()
	if err != nil {
		return err
	}
	question := make([]float32, dimension)
	question[0] = 1
	_, err = m.search(ctx, readyTimeout, collection, memory.VectorQuery{Vector: question, Namespace: "~", Limit: 1}, entity.ClStrong)
	return err
}

// BareSearch asks for the nearest entries by the SDK alone, without a condition, an order or anything to read from them,
// and tells how many there were. It is what [Milvus.Search] is measured against.
func (m *Milvus) BareSearch(ctx context.Context, vector []float32, limit int) (int, error) {
	collection, _, err := m.prepared()
	if err != nil {
		return 0, err
	}
	params, err := entity.NewIndexHNSWSearchParam(max(hnswSearch, limit))
	if err != nil {
		return 0, fmt.Errorf("%w: search vectors: %s", ErrOptions, err.Error())
	}
	answer, err := m.client.Search(ctx, collection, nil, "", nil, []entity.Vector{entity.FloatVector(vector)}, fieldVector, entity.COSINE, limit, params,
		client.WithSearchQueryConsistencyLevel(entity.ClBounded))
	if err != nil {
		return 0, m.translate(ctx, "search collection "+collection, err)
	}
	n := 0
	for _, result := range answer {
		n += result.ResultCount
	}
	return n, nil
}

// Drop removes the collection in use with all that is in it. It can be prepared again.
func (m *Milvus) Drop(ctx context.Context) error {
	collection, _, err := m.prepared()
	if err != nil {
		return err
	}
	err = m.call(ctx, loadTimeout, "drop collection "+collection, func(ctx context.Context) error {
		return m.client.DropCollection(ctx, collection)
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.collection = ""
	return nil
}
