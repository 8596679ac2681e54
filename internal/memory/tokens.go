package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
)

// Scope says what the bearer of an access token may do. Each scope may do what those before it may.
type Scope string

// Scopes of access tokens.
const (
	ScopeRead   Scope = "read"
	ScopeWrite  Scope = "write"
	ScopeReview Scope = "review"
	ScopeAdmin  Scope = "admin"
)

// Scopes lists all scopes, the narrowest first.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeWrite, ScopeReview, ScopeAdmin} }

// Allows says whether the scope covers what is needed. An unknown scope covers nothing, and nothing covers one.
func (s Scope) Allows(needed Scope) bool {
	have, need := slices.Index(Scopes(), s), slices.Index(Scopes(), needed)
	return need >= 0 && have >= need
}

// AccessToken lets its bearer into one namespace. The secret itself is shown once, when the token is made, and is kept
// nowhere.
type AccessToken struct {
	TokenID string `json:"token_id"`
	// Hash is [TokenHash] of the secret.
	Hash      string `json:"-"`
	Namespace string `json:"namespace"`
	Scope     Scope  `json:"scope"`
	// Label says what it is for.
	Label     string     `json:"label,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"` // nil: never
	Revoked   bool       `json:"revoked"`
}

// Valid says whether the token lets anyone in at that moment.
func (t AccessToken) Valid(now time.Time) bool {
	return !t.Revoked && (t.ExpiresAt == nil || now.Before(*t.ExpiresAt))
}

// TokenHash is what is kept of the secret of an access token: its SHA-256 in hexadecimal. A secret must be long and
// random, so that the hash needs no salt.
func TokenHash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
