package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/recall"
)

// Recaller answers questions. Errors are [recall.ErrQuestion], memory.ErrUnavailable or the context's.
type Recaller interface {
	Recall(ctx context.Context, q recall.Question) (recall.Answer, error)
	Check(ctx context.Context, a recall.Action) (recall.Answer, error)
	Rules(ctx context.Context, namespace, taskType string, asOf time.Time, asker recall.Asker) (recall.Answer, error)
}

// Written says what became of a write.
type Written struct {
	// ItemID is the item that was written or changed; empty for feedback.
	ItemID string
	// Status is one word such as stored, updated, forgotten or pending_review.
	Status string
	// Notice is a sentence for the agent, or empty.
	Notice string
}

// Writer stores what an agent asks to store, change or judge. It returns once the record holds it. Errors are
// events.ErrInvalid, events.ErrTooLarge, memory.ErrNotFound, memory.ErrRejected, memory.ErrQueueFull,
// memory.ErrUnavailable or the context's.
type Writer interface {
	Write(ctx context.Context, e events.Event) (Written, error)
}

// Working gives the working memory of a live task as JSON; memory.ErrNotFound when there is none.
type Working interface {
	Working(ctx context.Context, namespace, taskID string) ([]byte, error)
}

// ErrToken means that a token is unknown, expired or revoked.
var ErrToken = errors.New("the token is not valid")

// Authenticator knows tokens by their secret. The error is [ErrToken] for one that it does not know; any other error
// means that it cannot say at the moment.
type Authenticator interface {
	Authenticate(ctx context.Context, secret string) (Identity, error)
}

// Identity is who calls.
type Identity struct {
	// TokenID names the token, never its secret. Empty means that none was needed.
	TokenID string
	// Namespace is whose memory the caller reads and writes.
	Namespace string
	Scope     Scope
}

// Scope is how much a caller may do; each includes the ones before. The zero value may do nothing.
type Scope int

// Scopes, the smallest first.
const (
	ScopeRead Scope = iota + 1
	ScopeWrite
	ScopeReview
	ScopeAdmin
)

// String is the word for the scope.
func (s Scope) String() string {
	switch s {
	case ScopeRead:
		return "read"
	case ScopeWrite:
		return "write"
	case ScopeReview:
		return "review"
	case ScopeAdmin:
		return "admin"
	default:
		return "none"
	}
}

// ParseScope reads the word for a scope.
func ParseScope(word string) (Scope, error) {
	for s := ScopeRead; s <= ScopeAdmin; s++ {
		if word == s.String() {
			return s, nil
		}
	}
	return 0, fmt.Errorf("scope %q: it must be read, write, review or admin", word)
}

// identityKey is where the context of a request carries its [Identity]: the protocol library hands a request on by its
// context alone.
type identityKey struct{}

func withIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// identityOf is the caller; without one it may do nothing.
func identityOf(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}
