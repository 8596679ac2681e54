package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

//nolint:gosec // They are names of columns (G101).
const tokenColumns = "token_id, version, hash, namespace, scope, label, created_at, expires_at, revoked"

// InsertToken stores an access token. A token that was revoked stays revoked. The error may be a [RowError].
func (c *ClickHouse) InsertToken(ctx context.Context, token memory.AccessToken) error {
	return c.writeToken(ctx, token, 1)
}

func (c *ClickHouse) writeToken(ctx context.Context, token memory.AccessToken, version uint64) error {
	reason := unstorable(token.CreatedAt)
	switch {
	case token.TokenID == "" || token.Hash == "" || token.Namespace == "":
		reason = "token_id, hash and namespace must not be empty"
	case !slices.Contains(memory.Scopes(), token.Scope):
		reason = fmt.Sprintf("scope %q: it must be one of %v", token.Scope, memory.Scopes())
	case reason == "" && token.ExpiresAt != nil:
		reason = unstorable(*token.ExpiresAt)
	}
	if reason != "" {
		return &RowError{ID: token.TokenID, Reason: reason}
	}
	return c.insert(ctx, "access_tokens", tokenColumns, 1, func(b driver.Batch, _ int) error {
		return b.Append(token.TokenID, version, token.Hash, token.Namespace, string(token.Scope), token.Label, token.CreatedAt, token.ExpiresAt, token.Revoked)
	})
}

// versioned is a token with the number of its state.
type versioned struct {
	memory.AccessToken
	version uint64
}

func (c *ClickHouse) tokens(ctx context.Context, where conditions) ([]versioned, error) {
	var out []versioned
	err := c.query(ctx, "read access tokens", "SELECT "+tokenColumns+" FROM access_tokens FINAL WHERE "+where.String()+" ORDER BY created_at, token_id", where.args, func(rows driver.Rows) error {
		var t versioned
		var scope string
		if err := rows.Scan(&t.TokenID, &t.version, &t.Hash, &t.Namespace, &scope, &t.Label, &t.CreatedAt, &t.ExpiresAt, &t.Revoked); err != nil {
			return err
		}
		t.Scope, t.CreatedAt = memory.Scope(scope), t.CreatedAt.UTC()
		if t.ExpiresAt != nil {
			at := t.ExpiresAt.UTC()
			t.ExpiresAt = &at
		}
		out = append(out, t)
		return nil
	})
	return out, err
}

// TokenByHash returns the token with the hash of a secret, whether or not it is still valid: see
// [memory.AccessToken.Valid]. The error is [ErrNotFound].
func (c *ClickHouse) TokenByHash(ctx context.Context, hash string) (memory.AccessToken, error) {
	var where conditions
	where.addIf(true, "hash = ?", hash)
	found, err := c.tokens(ctx, where)
	if err != nil {
		return memory.AccessToken{}, err
	}
	if hash == "" || len(found) == 0 {
		return memory.AccessToken{}, fmt.Errorf("%w: no access token has this secret", ErrNotFound)
	}
	return found[0].AccessToken, nil
}

// Tokens returns the tokens of a namespace, or of all when it is empty, the oldest first.
func (c *ClickHouse) Tokens(ctx context.Context, namespace string) ([]memory.AccessToken, error) {
	var where conditions
	where.addIf(namespace != "", "namespace = ?", namespace)
	found, err := c.tokens(ctx, where)
	if err != nil {
		return nil, err
	}
	out := make([]memory.AccessToken, len(found))
	for i, t := range found {
		out[i] = t.AccessToken
	}
	return out, nil
}

// RevokeToken ends a token for ever. Revoking it again changes nothing. The error is [ErrNotFound] when the namespace
// has no such token; an empty namespace means any.
func (c *ClickHouse) RevokeToken(ctx context.Context, namespace, tokenID string) error {
	var where conditions
	where.addIf(true, "token_id = ?", tokenID)
	where.addIf(namespace != "", "namespace = ?", namespace)
	found, err := c.tokens(ctx, where)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("%w: access token %q", ErrNotFound, tokenID)
	}
	token := found[0]
	if token.Revoked {
		return nil
	}
	token.Revoked = true
	return c.writeToken(ctx, token.AccessToken, token.version+1)
}
