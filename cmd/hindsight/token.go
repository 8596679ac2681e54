package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

// tokenPrefix begins every secret, so that scanners for leaked secrets can know it.
const tokenPrefix = "hs_"

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "Make, list and revoke access tokens for the MCP server",
		Example: "  hindsight token create --namespace demo --scope write",
	}
	cmd.AddCommand(a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
	return cmd
}

func (a *app) tokenCreateCommand() *cobra.Command {
	var namespace, scope, label string
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make an access token and print it; it is shown this once",
		Long: "A token gives its holder one namespace: read asks, write also stores and forgets, review also approves, admin all.\n" +
			"Only its hash is kept.",
		Example: "  hindsight token create --namespace demo --scope read\n  hindsight token create --namespace demo --scope write --label \"ci agent\" --expires 720h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.createToken(cmd.Context(), namespace, memory.Scope(scope), label, lifetime)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&namespace, "namespace", "", "the namespace that it opens (default: HINDSIGHT_NAMESPACE)")
	flags.StringVar(&scope, "scope", string(memory.ScopeRead), "read, write, review or admin")
	flags.StringVar(&label, "label", "", "whose it is, for the list")
	flags.DurationVar(&lifetime, "expires", 0, "how long it is valid; 0 means until it is revoked")
	return cmd
}

func (a *app) createToken(ctx context.Context, namespace string, scope memory.Scope, label string, lifetime time.Duration) (err error) {
	if namespace, err = a.namespace(namespace); err != nil {
		return err
	}
	if !slices.Contains(memory.Scopes(), scope) {
		return fmt.Errorf("%w: --scope %q: it must be one of %v", errUsage, scope, memory.Scopes())
	}
	if lifetime < 0 {
		return fmt.Errorf("%w: --expires must not be negative", errUsage)
	}
	st, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // It never fails: the program would end.
	secret := tokenPrefix + base64.RawURLEncoding.EncodeToString(raw)
	hash := memory.TokenHash(secret)
	token := memory.AccessToken{
		TokenID: hash[:12], Hash: hash, Namespace: namespace, Scope: scope, Label: label, CreatedAt: time.Now().UTC(),
	}
	if lifetime > 0 {
		expires := token.CreatedAt.Add(lifetime)
		token.ExpiresAt = &expires
	}
	if err := st.InsertToken(ctx, token); err != nil {
		return fmt.Errorf("store the token's hash: %w", err)
	}
	if a.json {
		return a.printJSON(struct {
			memory.AccessToken
			Token string `json:"token"`
		}{token, secret})
	}
	a.printf("%s\n", secret)
	a.sayf("token %s for %s of namespace %s; it is shown this once\n", token.TokenID, scope, namespace)
	return nil
}

func (a *app) tokenListCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use: "list", Short: "List access tokens; never their secrets", Example: "  hindsight token list --namespace demo", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listTokens(cmd.Context(), namespace) },
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "only of this namespace (default: HINDSIGHT_NAMESPACE)")
	return cmd
}

func (a *app) listTokens(ctx context.Context, namespace string) (err error) {
	if namespace, err = a.namespace(namespace); err != nil {
		return err
	}
	st, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	list, err := st.Tokens(ctx, namespace)
	if err != nil {
		return fmt.Errorf("list tokens: %w", err)
	}
	if a.json {
		return a.printJSON(list)
	}
	table := a.newTable()
	table.rowf("TOKEN\tSCOPE\tLABEL\tCREATED (UTC)\tSTATE\n")
	for _, t := range list {
		state := "valid"
		switch {
		case t.Revoked:
			state = "revoked"
		case !t.Valid(time.Now()):
			state = "expired"
		case t.ExpiresAt != nil:
			state = "until " + t.ExpiresAt.UTC().Format(time.DateTime)
		}
		table.rowf("%s\t%s\t%s\t%s\t%s\n", t.TokenID, t.Scope, t.Label, t.CreatedAt.UTC().Format(time.DateTime), state)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use: "revoke TOKEN_ID", Short: "End an access token; it stops working within 15 seconds", Example: "  hindsight token revoke --namespace demo 4f1c22ab90de",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.revokeToken(cmd.Context(), namespace, args[0]) },
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "the namespace that it opens (default: HINDSIGHT_NAMESPACE)")
	return cmd
}

func (a *app) revokeToken(ctx context.Context, namespace, id string) (err error) {
	if namespace, err = a.namespace(namespace); err != nil {
		return err
	}
	st, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := st.RevokeToken(ctx, namespace, id); err != nil {
		if errors.Is(err, memory.ErrNotFound) {
			return fmt.Errorf("there is no token %s in namespace %s: 'hindsight token list' shows them: %w", id, namespace, err)
		}
		return fmt.Errorf("revoke the token: %w", err)
	}
	if a.json {
		return a.printJSON(map[string]string{"token_id": id, "status": "revoked"})
	}
	a.printf("revoked %s\n", id)
	return nil
}
