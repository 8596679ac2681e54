package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/embed"
	"github.com/hindsight-memory/hindsight/internal/service"
)

func (a *app) reindexCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reindex",
		Short: "Build the vector index again, and go over to another embedding model",
		Long: "Builds the index of the configured embedding model from the vectors in the record, embeds what has none of that\n" +
			"model yet, and takes out what must not be found. After the setting of the model was changed, this is what makes the\n" +
			"new one the model in use; everything may run meanwhile. It may be repeated at any time.",
		Example: "  hindsight reindex\n  hindsight reindex --json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.reindex(cmd.Context()) },
	}
}

func (a *app) reindex(ctx context.Context) (err error) {
	parts, err := a.openParts(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	meter := newMeter(a)
	defer meter.finish()
	done, err := parts.Reindex(ctx, func(r service.Reindexed) { meter.reindexed(r) })
	if errors.Is(err, embed.ErrNone) {
		return err //nolint:wrapcheck // It says what to do.
	}
	if err != nil {
		return fmt.Errorf("reindex (run it again to go on): %w", err)
	}
	if a.json {
		return a.printJSON(done)
	}
	meter.finish()
	a.printf("%d items are in the index of %s, %d of them embedded now; %d entries removed\n", done.Indexed, done.Model, done.Embedded, done.Removed)
	return nil
}

// reindexed shows how far a reindex is; how much there is to do is not known.
func (m *meter) reindexed(r service.Reindexed) {
	if m.tty {
		if m.bar == nil {
			m.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(m.out), progressbar.OptionSetDescription("indexed"), progressbar.OptionClearOnFinish())
		}
		_ = m.bar.Set(r.Indexed)
		return
	}
	m.line(map[string]any{"progress": "reindex", "indexed": r.Indexed, "embedded": r.Embedded, "removed": r.Removed})
}
