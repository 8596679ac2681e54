package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hindsight-memory/hindsight/events"
)

// The streams. The first three are work queues: what a worker has acknowledged
// is gone, so that a full stream drains by itself.
const (
	StreamTraces     = "TRACES"
	StreamWrites     = "WRITES"
	StreamReflect    = "REFLECT"
	StreamDeadLetter = "DEADLETTER"
)

// Key-value buckets.
const (
	bucketWorking = "hindsight_working"
	bucketState   = "hindsight_state"
)

const (
	subjectPrefix    = "hindsight.v1."
	reflectPrefix    = subjectPrefix + "reflect."
	deadLetterPrefix = subjectPrefix + "deadletter."

	// duplicateWindow is how long the server remembers message ids. Each
	// takes about 170 bytes of its memory, which are too many for two minutes
	// of trace events at full speed. Of those the record recognises a
	// duplicate as well, so that a late one costs only its way there.
	duplicateWindow   = 2 * time.Minute
	traceWindow       = 30 * time.Second
	deadLetterAge     = 30 * 24 * time.Hour
	defaultTraces     = 1 << 30
	writesBytes       = 256 << 20
	reflectBytes      = 1 << 30
	deadLetterBytes   = 1 << 30
	workingBytes      = 256 << 20
	stateBytes        = 64 << 20
	defaultWorkingTTL = 24 * time.Hour
)

// StreamConfig is what an operator may choose about the streams.
type StreamConfig struct {
	// TracesMaxBytes bounds the stream TRACES; publishers get [ErrFull] past
	// it. Default 1 GiB. The server reserves it: all streams and buckets
	// together ask for about 2.6 GiB more than this.
	TracesMaxBytes int64
	// Replicas of every stream and bucket, 1 to 5. Default 1.
	Replicas int
	// WorkingTTL is how long working memory outlives its last write.
	// At least 1 s, default 24 h.
	WorkingTTL time.Duration
}

// ReflectSubject is where a request to reflect on a task of the namespace is
// published: hindsight.v1.reflect.<tenant>.<team>, the team being ~ when the
// namespace has none.
func ReflectSubject(namespace string) string {
	return reflectPrefix + events.NamespaceTokens(namespace)
}

// EnsureStreams creates the streams and buckets, or changes those that exist
// to what cfg says. Several processes may do it at once. While JetStream does
// not answer it tries again until ctx ends; the error is [ErrUnavailable]
// then, [ErrStreamConflict] when a stream of that name was made for something
// else, and [ErrFull] when the server has not enough storage.
func (c *Conn) EnsureStreams(ctx context.Context, cfg StreamConfig) error {
	if cfg.TracesMaxBytes == 0 {
		cfg.TracesMaxBytes = defaultTraces
	}
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if cfg.WorkingTTL == 0 {
		cfg.WorkingTTL = defaultWorkingTTL
	}
	if cfg.TracesMaxBytes < 0 || cfg.Replicas < 1 || cfg.Replicas > 5 || cfg.WorkingTTL < time.Second {
		return fmt.Errorf("ensure streams: want HINDSIGHT_TRACES_MAX_BYTES above 0, HINDSIGHT_NATS_REPLICAS from 1 to 5 and a life of working memory of at least 1s, have %d, %d and %s",
			cfg.TracesMaxBytes, cfg.Replicas, cfg.WorkingTTL)
	}
	if err := c.Check(ctx); err != nil {
		return err
	}
	for _, stream := range streams(cfg) {
		if err := c.retry(ctx, func(ctx context.Context) error { return c.ensureStream(ctx, stream) }); err != nil {
			return fmt.Errorf("ensure stream %s: %w", stream.Name, err)
		}
	}
	for _, bucket := range buckets(cfg) {
		err := c.retry(ctx, func(ctx context.Context) error {
			_, err := c.js.CreateOrUpdateKeyValue(ctx, bucket)
			return storageHint(translate(err), bucket.MaxBytes)
		})
		if err != nil {
			return fmt.Errorf("ensure bucket %s: %w", bucket.Bucket, err)
		}
	}
	return nil
}

// Check asks for JetStream, without changing anything. While it does not answer
// it tries again until ctx ends; the error is [ErrUnavailable] then,
// [ErrNoJetStream] when there is none, and [ErrDenied] when we may not ask.
func (c *Conn) Check(ctx context.Context) error {
	const looks = 3 // A server that is stopping says the same.
	for n := 1; ; n++ {
		err := c.retry(ctx, func(ctx context.Context) error {
			_, err := c.js.AccountInfo(ctx)
			for _, none := range []error{jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount} {
				if errors.Is(err, none) {
					return fmt.Errorf("%w: start nats-server with -js (jetstream {} in its settings) or give our account JetStream: %w", ErrNoJetStream, err)
				}
			}
			return err
		})
		if err == nil || n == looks || !errors.Is(err, ErrNoJetStream) || !pause(ctx, delay(n, retryLow, retryHigh)) {
			if err != nil {
				return fmt.Errorf("ask for JetStream: %w", err)
			}
			return nil
		}
	}
}

func streams(cfg StreamConfig) []jetstream.StreamConfig {
	queue := func(name, token, description string, maxBytes int64) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: name, Description: description, Subjects: []string{subjectPrefix + token + ".>"},
			Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxBytes: maxBytes,
		}
	}
	all := []jetstream.StreamConfig{
		queue(StreamTraces, "trace", "trace events on their way to the record", cfg.TracesMaxBytes),
		queue(StreamWrites, "write", "what agents ask to store, update or forget", writesBytes),
		queue(StreamReflect, "reflect", "task revisions to reflect on", reflectBytes),
		{
			Name: StreamDeadLetter, Description: "messages that could not be handled",
			Subjects: []string{deadLetterPrefix + ">"}, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
			MaxBytes: deadLetterBytes, MaxAge: deadLetterAge, AllowDirect: true,
		},
	}
	for i := range all {
		all[i].Storage = jetstream.FileStorage
		all[i].Replicas = cfg.Replicas
		all[i].Duplicates = duplicateWindow
		if all[i].Name == StreamTraces {
			all[i].Duplicates = traceWindow
		}
	}
	return all
}

func buckets(cfg StreamConfig) []jetstream.KeyValueConfig {
	return []jetstream.KeyValueConfig{
		{
			Bucket: bucketWorking, Description: "working memory of live tasks", TTL: cfg.WorkingTTL,
			MaxBytes: workingBytes, Replicas: cfg.Replicas, Storage: jetstream.FileStorage,
		},
		{
			Bucket: bucketState, Description: "leases and bookmarks of services",
			MaxBytes: stateBytes, Replicas: cfg.Replicas, Storage: jetstream.FileStorage,
		},
	}
}

// ensureStream creates one stream or brings it up to date. What an operator
// added to it (placement, mirrors, compression) stays.
func (c *Conn) ensureStream(ctx context.Context, want jetstream.StreamConfig) error {
	stream, err := c.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = c.js.CreateStream(ctx, want)
		switch {
		case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse): // another process was faster, with other settings
			stream, err = c.js.Stream(ctx, want.Name)
		case apiCode(err) == codeSubjectOverlap:
			return fmt.Errorf("%w: another stream on this server already takes %s; find it with `nats stream ls --subjects` and remove those subjects from it: %w",
				ErrStreamConflict, want.Subjects[0], err)
		case err == nil:
			return nil
		}
	}
	if err != nil {
		return storageHint(translate(err), want.MaxBytes)
	}
	have := stream.CachedInfo().Config
	if have.Retention != want.Retention || have.Storage != want.Storage || !slices.Equal(have.Subjects, want.Subjects) {
		return fmt.Errorf("%w: stream %s exists with subjects %v, retention %s and storage %s, but Hindsight needs %v, %s and %s; save what it holds if it matters, then delete it (`nats stream rm %s`) and start again",
			ErrStreamConflict, want.Name, have.Subjects, have.Retention, have.Storage, want.Subjects, want.Retention, want.Storage, want.Name)
	}
	next := have
	next.Description, next.Discard, next.MaxBytes, next.MaxAge = want.Description, want.Discard, want.MaxBytes, want.MaxAge
	next.Replicas, next.Duplicates, next.AllowDirect = want.Replicas, want.Duplicates, want.AllowDirect
	if have.Description == next.Description && have.Discard == next.Discard && have.MaxBytes == next.MaxBytes && have.MaxAge == next.MaxAge &&
		have.Replicas == next.Replicas && have.Duplicates == next.Duplicates && have.AllowDirect == next.AllowDirect {
		return nil
	}
	_, err = c.js.UpdateStream(ctx, next)
	return storageHint(translate(err), want.MaxBytes)
}

// storageHint says what to do when the server has no room for a stream.
func storageHint(err error, maxBytes int64) error {
	if !errors.Is(err, ErrFull) {
		return err
	}
	return fmt.Errorf("it reserves %d MiB, more than the server's JetStream storage has left (max_file_store, or the disk it stands on): give the server more, delete streams that are not needed, or lower HINDSIGHT_TRACES_MAX_BYTES: %w",
		maxBytes>>20, err)
}

// retry calls f, each time with a deadline, until it gives anything but
// ErrUnavailable or ctx ends. A request that the server may not answer us is
// not repeated: the error is [ErrDenied].
func (c *Conn) retry(ctx context.Context, f func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		call, cancel := context.WithTimeout(ctx, requestTimeout)
		err := translate(f(call))
		cancel()
		if !errors.Is(err, ErrUnavailable) {
			return err
		}
		// The server does not answer a request that is forbidden, but tells the connection.
		if last := c.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
			return fmt.Errorf("%w: our user in HINDSIGHT_NATS_URL lacks a permission: %w", ErrDenied, last)
		}
		wait := delay(attempt, retryLow, retryHigh)
		c.waiting(fmt.Errorf("its JetStream: %w", err))
		c.log.Warn("JetStream does not answer yet", "error", err, "retry_in", wait)
		if !pause(ctx, wait) {
			return err
		}
	}
}
