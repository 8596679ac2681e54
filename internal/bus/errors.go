package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors of this package, for errors.Is.
var (
	// ErrFull means that a stream, or the server's storage, takes no more.
	// It is back-pressure: publish again once workers have drained it.
	ErrFull = errors.New("stream is full")
	// ErrTooLarge means that the server refuses a message of this size; it
	// will never be taken.
	ErrTooLarge = errors.New("message is too large")
	// ErrUnavailable means that the server or its JetStream did not answer.
	// What was asked may have happened; asking again is safe.
	ErrUnavailable = errors.New("NATS is unavailable")
	// ErrNotFound means that there is no such stream, key or letter.
	ErrNotFound = errors.New("not found")
	// ErrHeld means that another holder has the lease.
	ErrHeld = errors.New("lease is held")
	// ErrStreamConflict means that a stream exists but was made for
	// something else; only a person can decide what to do with its content.
	ErrStreamConflict = errors.New("stream conflicts")
	// ErrAddress means that an address is malformed, or that its scheme or
	// host is not that of the server.
	ErrAddress = errors.New("the address of NATS is wrong")
	// ErrStranger means that something else than NATS answers there.
	ErrStranger = errors.New("this is not NATS")
	// ErrDenied means that the server refuses us: credentials or permissions.
	ErrDenied = errors.New("NATS refuses us")
	// ErrVersion means that the server is too old.
	ErrVersion = errors.New("the NATS server is too old")
	// ErrNoJetStream means that the server, or our account there, has no
	// JetStream.
	ErrNoJetStream = errors.New("NATS runs without JetStream")
	// ErrDrainTimeout is the cause with which a handler's context is
	// cancelled when it has not finished within the drain timeout.
	ErrDrainTimeout = errors.New("drain timeout")
)

// Codes of JetStream that nats.go does not name.
const (
	codeAccountResources   jetstream.ErrorCode = 10002
	codeClusterUnavailable jetstream.ErrorCode = 10008
	codeInsufficient       jetstream.ErrorCode = 10023
	codeMemoryExceeded     jetstream.ErrorCode = 10028
	codeStorageExceeded    jetstream.ErrorCode = 10047
	codeInvalidConfig      jetstream.ErrorCode = 10052
	codeSubjectOverlap     jetstream.ErrorCode = 10065
	codeStoreFailed        jetstream.ErrorCode = 10077
	codeConsumerNotUnique  jetstream.ErrorCode = 10100
	codeConsumerUnfiltered jetstream.ErrorCode = 10099
)

// apiCode is JetStream's error code, 0 if err is none of its errors.
func apiCode(err error) jetstream.ErrorCode {
	if apiErr := (*jetstream.APIError)(nil); errors.As(err, &apiErr) {
		return apiErr.ErrorCode
	}
	return 0
}

// translate adds the sentinel that err amounts to; err stays in the chain. An
// error that says something about the request itself is returned as it is.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, context.Canceled):
		return err
	}
	for _, done := range []error{ErrFull, ErrTooLarge, ErrUnavailable, ErrNotFound, ErrStreamConflict, ErrNoJetStream, ErrDenied} {
		if errors.Is(err, done) {
			return err
		}
	}
	switch apiCode(err) {
	case codeStoreFailed: // the one code for whatever the store says
		switch text := err.Error(); {
		case strings.Contains(text, "too large"):
			return fmt.Errorf("%w: %w", ErrTooLarge, err)
		case strings.Contains(text, "closed"): // the server is stopping
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return fmt.Errorf("%w: %w", ErrFull, err)
	case codeInsufficient, codeMemoryExceeded, codeStorageExceeded, codeAccountResources:
		return fmt.Errorf("%w: %w", ErrFull, err)
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case codeClusterUnavailable, jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case jetstream.JSErrCodeStreamNotFound, jetstream.JSErrCodeConsumerNotFound, jetstream.JSErrCodeMessageNotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	default: // no error of JetStream, or one about the request itself
	}
	for _, missing := range []error{jetstream.ErrKeyNotFound, jetstream.ErrKeyDeleted, jetstream.ErrBucketNotFound} {
		if errors.Is(err, missing) {
			return fmt.Errorf("%w: %w", ErrNotFound, err)
		}
	}
	// The connection may break under a write before nats.go has noticed.
	if broken := (*net.OpError)(nil); errors.As(err, &broken) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	for _, away := range []error{
		io.EOF, net.ErrClosed, context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrNoServers, nats.ErrConnectionClosed,
		nats.ErrConnectionReconnecting, nats.ErrConnectionDraining, nats.ErrDisconnected, nats.ErrReconnectBufExceeded,
		nats.ErrStaleConnection, jetstream.ErrNoStreamResponse, jetstream.ErrAsyncPublishTimeout,
		jetstream.ErrJetStreamPublisherClosed, jetstream.ErrTooManyStalledMsgs,
	} {
		if errors.Is(err, away) {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return err
}
