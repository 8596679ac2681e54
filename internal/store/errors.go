package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// Errors of the store; test with errors.Is. The first three are those of package memory, so that a use case need not
// know this package.
var (
	ErrUnavailable = memory.ErrUnavailable
	ErrRejected    = memory.ErrRejected
	ErrNotFound    = memory.ErrNotFound

	// ErrOptions means that the options are wrong; nothing was tried.
	ErrOptions = errors.New("invalid store options")
	// ErrDenied means that the server knows us and refuses: user, password or rights. It always comes together with
	// [ErrUnavailable], because a running service should wait for the operator, while a starting one should tell him.
	ErrDenied = errors.New("access denied")
	// ErrVersion means that the server is too old.
	ErrVersion = errors.New("server version not supported")
	// ErrStranger means that something else than ClickHouse answers at its address, or that it wants TLS where the
	// address has none, or the other way round. No waiting helps.
	ErrStranger = errors.New("this is not ClickHouse")
	// ErrFeature means that the server refuses a statement of the schema.
	ErrFeature = errors.New("the server cannot do what the schema needs")
	// ErrQuery means that a statement given by a person is wrong; the text says where.
	ErrQuery = errors.New("query failed")
	// ErrSchemaNewer means that the database was made by a newer program.
	ErrSchemaNewer = errors.New("schema is newer than this program")
	// ErrSchemaOlder means that migrations have to be run.
	ErrSchemaOlder = errors.New("schema is older than this program")
	// ErrSchemaChanged means that a migration was applied with other contents than this program has.
	ErrSchemaChanged = errors.New("applied migration has changed")
)

// RowError names the row of a batch that can never be stored. It is an [ErrRejected]; nothing of the batch was stored.
type RowError struct {
	// Index is the row's place in the argument, from 0.
	Index int
	// ID is the row's id.
	ID string
	// Reason says what is wrong with it.
	Reason string
}

func (e *RowError) Error() string {
	return fmt.Sprintf("%s: row %d (%q): %s", ErrRejected, e.Index, e.ID, e.Reason)
}

// Unwrap makes errors.Is(err, ErrRejected) true.
func (e *RowError) Unwrap() error { return ErrRejected }

// Codes of ClickHouse exceptions that matter here; the names are the server's.
const (
	codeUnknownTable    = 60
	codeTableExists     = 57
	codeUnknownDatabase = 81
	codeReadonly        = 164
)

// rejectedCodes are about the data of an insert itself: the same row fails for ever.
func rejectedCodes() []int32 {
	return []int32{
		6,   // CANNOT_PARSE_TEXT
		26,  // CANNOT_PARSE_QUOTED_STRING
		27,  // CANNOT_PARSE_INPUT_ASSERTION_FAILED
		38,  // CANNOT_PARSE_DATE
		41,  // CANNOT_PARSE_DATETIME
		53,  // TYPE_MISMATCH
		69,  // ARGUMENT_OUT_OF_BOUND
		70,  // CANNOT_CONVERT_TYPE
		72,  // CANNOT_PARSE_NUMBER
		117, // INCORRECT_DATA
		131, // TOO_LARGE_STRING_SIZE
		321, // VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
		349, // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
		469, // VIOLATED_CONSTRAINT
	}
}

// deniedCodes mean that the operator has to give us access.
func deniedCodes() []int32 {
	return []int32{
		192, // UNKNOWN_USER
		193, // WRONG_PASSWORD
		194, // REQUIRED_PASSWORD
		497, // ACCESS_DENIED
		516, // AUTHENTICATION_FAILED
	}
}

// overloadCodes mean that the server cannot do now what it could do at another time.
func overloadCodes() []int32 {
	return []int32{
		159, // TIMEOUT_EXCEEDED
		160, // TOO_SLOW
		202, // TOO_MANY_SIMULTANEOUS_QUERIES
		203, // NO_FREE_CONNECTION
		209, // SOCKET_TIMEOUT
		210, // NETWORK_ERROR
		225, // NO_ZOOKEEPER
		236, // ABORTED
		241, // MEMORY_LIMIT_EXCEEDED
		242, // TABLE_IS_READ_ONLY
		243, // NOT_ENOUGH_SPACE
		252, // TOO_MANY_PARTS
		279, // ALL_CONNECTION_TRIES_FAILED
		285, // TOO_FEW_LIVE_REPLICAS
		286, // UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
		319, // UNKNOWN_STATUS_OF_INSERT
		394, // QUERY_WAS_CANCELLED
		439, // CANNOT_SCHEDULE_TASK
		499, // S3_ERROR
		745, // SERVER_OVERLOADED
		999, // KEEPER_EXCEPTION
	}
}

// translate turns a driver's error into one of ours, with what was being done. ctx is the caller's: when it has ended,
// that is the reason and not the server. Whatever is not clearly the fault of a row counts as [ErrUnavailable], since
// giving up a row wrongly loses it, and retrying wrongly only makes noise.
func translate(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	code, text := exception(err)
	switch {
	case slices.Contains(rejectedCodes(), code):
		return fmt.Errorf("%s: %w: %s", doing, ErrRejected, text)
	case slices.Contains(deniedCodes(), code):
		return fmt.Errorf("%s: %w: %w: %s", doing, ErrUnavailable, ErrDenied, text)
	case code == codeUnknownTable || code == codeUnknownDatabase:
		return fmt.Errorf("%s: %w: the tables are not there yet, run the migrations first: %s", doing, ErrUnavailable, text)
	default:
		return fmt.Errorf("%s: %w: %s", doing, ErrUnavailable, text)
	}
}

// translateQuery is [translate] for a statement that a person wrote.
func translateQuery(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	code, text := exception(err)
	if ctx.Err() != nil || code == 0 || slices.Contains(overloadCodes(), code) || slices.Contains(deniedCodes(), code) {
		return translate(ctx, doing, err)
	}
	if code == codeReadonly {
		return fmt.Errorf("%w: only statements that read are allowed: %s", ErrQuery, text)
	}
	return fmt.Errorf("%w: %s", ErrQuery, text)
}

// exception gives the server's code, or 0 when the server did not say, and the text for a person.
func exception(err error) (code int32, text string) {
	if err == nil {
		return 0, ""
	}
	if ex, is := errors.AsType[*clickhouse.Exception](err); is {
		return ex.Code, fmt.Sprintf("ClickHouse says: code %d: %s", ex.Code, shorten(ex.Message))
	}
	if answer, is := errors.AsType[*clickhouse.HTTPError](err); is && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden) {
		return 516, shorten(err.Error())
	}
	return 0, shorten(err.Error())
}

// shorten keeps a message readable: ClickHouse may repeat a whole statement in it.
func shorten(message string) string {
	const longest = 2000
	message = strings.TrimSpace(message)
	if len(message) <= longest {
		return message
	}
	return strings.ToValidUTF8(message[:longest], "") + "…"
}
