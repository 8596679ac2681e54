package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hindsight-memory/hindsight/internal/mcpserver"
	"github.com/hindsight-memory/hindsight/internal/memory"
)

const (
	// tokenAge is how long a token is believed without asking the record again, and so how long a revoked one may still work.
	tokenAge = 15 * time.Second
	// maxTokens bounds how many are remembered; unknown ones are not.
	maxTokens = 10_000
)

// tokenReader finds a token by the hash of its secret.
type tokenReader interface {
	TokenByHash(ctx context.Context, hash string) (memory.AccessToken, error)
}

// tokens knows callers by their tokens. It is safe for concurrent use.
type tokens struct {
	record tokenReader
	now    func() time.Time
	mu     sync.Mutex
	known  map[string]knownToken // by hash
}

type knownToken struct {
	identity mcpserver.Identity
	asked    time.Time
	expires  time.Time // zero: never
}

// newTokens makes an authenticator; now is the clock.
func newTokens(record tokenReader, now func() time.Time) *tokens {
	return &tokens{record: record, now: now, known: map[string]knownToken{}}
}

// Authenticate implements [mcpserver.Authenticator].
func (t *tokens) Authenticate(ctx context.Context, secret string) (mcpserver.Identity, error) {
	hash, now := memory.TokenHash(secret), t.now()
	t.mu.Lock()
	known, found := t.known[hash]
	t.mu.Unlock()
	if found && now.Sub(known.asked) < tokenAge && (known.expires.IsZero() || now.Before(known.expires)) {
		return known.identity, nil
	}
	token, err := t.record.TokenByHash(ctx, hash)
	switch {
	case errors.Is(err, memory.ErrNotFound):
		t.forget(hash)
		return mcpserver.Identity{}, mcpserver.ErrToken
	case err != nil:
		return mcpserver.Identity{}, fmt.Errorf("look up the token: %w", err)
	case !token.Valid(now):
		t.forget(hash)
		return mcpserver.Identity{}, mcpserver.ErrToken
	}
	scope, err := mcpserver.ParseScope(string(token.Scope))
	if err != nil {
		return mcpserver.Identity{}, fmt.Errorf("read the token's scope: %w", err)
	}
	known = knownToken{identity: mcpserver.Identity{TokenID: token.TokenID, Namespace: token.Namespace, Scope: scope}, asked: now}
	if token.ExpiresAt != nil {
		known.expires = *token.ExpiresAt
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= maxTokens {
		clear(t.known)
	}
	t.known[hash] = known
	return known.identity, nil
}

func (t *tokens) forget(hash string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, hash)
}
