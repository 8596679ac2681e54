package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/hindsight-memory/hindsight/schema"
)

const defaultLeaseExpiry = 30 * time.Second

// MigrateOptions says how to migrate. The zero value is right for a single server.
type MigrateOptions struct {
	// Variant is the kind of server.
	Variant schema.Variant
	// Migrations are what to apply, in order. Default: those of package schema.
	Migrations []schema.Migration
	// LeaseExpiry is after how long without a sign of life a migrator counts as dead, at least 1 second. Default: 30 s.
	LeaseExpiry time.Duration
	// Logger is told of each applied migration and of waiting. Default: nothing is logged.
	Logger *slog.Logger
}

// Migrate creates the database if it is missing and brings its schema up to this program's. It only goes forward.
// Several programs may call it at once: one migrates and the others wait for it; when it dies, another continues. A
// migration that failed half way is applied again from its first statement. The error is [ErrSchemaNewer],
// [ErrSchemaChanged], [ErrUnavailable], [ErrOptions], or [ErrFeature] with the statement that the server refuses.
func (c *ClickHouse) Migrate(ctx context.Context, opts MigrateOptions) error {
	m, err := c.newMigrator(opts)
	if err != nil {
		return err
	}
	if err := m.createDatabase(ctx); err != nil {
		return err
	}
	for {
		pending, err := m.pending(ctx)
		if err != nil || len(pending) == 0 {
			return err
		}
		// Another migrator took over because this one seemed dead: look again at what is left.
		if err := m.applyUnderLease(ctx); !errors.Is(err, errLeaseLost) {
			return err
		}
		m.logger.WarnContext(ctx, "lost the lease of the schema to another program")
	}
}

type migrator struct {
	conn       driver.Conn
	admin      driver.Conn
	database   string
	variant    schema.Variant
	migrations []schema.Migration
	expiry     time.Duration
	logger     *slog.Logger
}

func (c *ClickHouse) newMigrator(opts MigrateOptions) (*migrator, error) {
	if err := opts.Variant.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if opts.LeaseExpiry == 0 {
		opts.LeaseExpiry = defaultLeaseExpiry
	}
	if opts.LeaseExpiry < time.Second {
		return nil, fmt.Errorf("%w: lease expiry %s: it must be at least 1s", ErrOptions, opts.LeaseExpiry)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Migrations == nil {
		all, err := schema.Migrations()
		if err != nil {
			return nil, fmt.Errorf("load migrations: %w", err)
		}
		opts.Migrations = all
	}
	return &migrator{
		conn: c.conn, admin: c.admin, database: c.database, variant: opts.Variant,
		migrations: opts.Migrations, expiry: opts.LeaseExpiry, logger: opts.Logger,
	}, nil
}

// createDatabase looks first, so that a user without the right to create one can use what an operator has created.
func (m *migrator) createDatabase(ctx context.Context) error {
	var there uint64
	if err := m.admin.QueryRow(ctx, "SELECT count() FROM system.databases WHERE name = ?", m.database).Scan(&there); err != nil {
		return translate(ctx, "look for database "+m.database, err)
	}
	if there > 0 {
		return nil
	}
	err := m.admin.Exec(ctx, "CREATE DATABASE IF NOT EXISTS `"+m.database+"` "+m.variant.OnCluster())
	return translate(ctx, "create database "+m.database, err)
}

const migrationsTable = `CREATE TABLE IF NOT EXISTS schema_migrations /* ON CLUSTER */
(
    version    UInt32,
    name       String,
    sha256     String COMMENT 'checksum of the file',
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(applied_at)
ORDER BY version
COMMENT 'Migrations of the schema that were applied'`

type applied struct{ name, sha256 string }

// appliedMigrations returns what the database says was applied; none when it has no table of it.
func appliedMigrations(ctx context.Context, conn driver.Conn) (map[uint32]applied, error) {
	rows, err := conn.Query(ctx, "SELECT version, argMax(name, applied_at), argMax(sha256, applied_at) FROM schema_migrations GROUP BY version")
	if code, _ := exception(err); code == codeUnknownTable || code == codeUnknownDatabase {
		return map[uint32]applied{}, nil
	}
	if err != nil {
		return nil, translate(ctx, "read applied migrations", err)
	}
	defer rows.Close() //nolint:errcheck // Err below has told what went wrong.
	out := map[uint32]applied{}
	for rows.Next() {
		var version uint32
		var a applied
		if err := rows.Scan(&version, &a.name, &a.sha256); err != nil {
			return nil, translate(ctx, "read applied migrations", err)
		}
		out[version] = a
	}
	return out, translate(ctx, "read applied migrations", rows.Err())
}

// pendingOf compares what was applied with what is known.
func pendingOf(known []schema.Migration, done map[uint32]applied, database string) ([]schema.Migration, error) {
	newest := uint32(0)
	if len(known) > 0 {
		newest = known[len(known)-1].Version
	}
	for version, a := range done {
		if version > newest {
			return nil, fmt.Errorf("%w: database %s has migration %04d (%s), this program knows up to %04d. "+
				"A newer program has used this database: run that version or a later one, or give this one another database",
				ErrSchemaNewer, database, version, a.name, newest)
		}
	}
	var pending []schema.Migration
	for _, m := range known {
		a, was := done[m.Version]
		if !was {
			pending = append(pending, m)
			continue
		}
		if a.sha256 != m.SHA256 {
			return nil, fmt.Errorf("%w: %s was applied to database %s with checksum %.12s…, this program has it with %.12s…. "+
				"A released migration never changes: use the program that made this database, or give this one another database",
				ErrSchemaChanged, m.File(), database, a.sha256, m.SHA256)
		}
	}
	return pending, nil
}

func (m *migrator) pending(ctx context.Context) ([]schema.Migration, error) {
	done, err := appliedMigrations(ctx, m.conn)
	if err != nil {
		return nil, err
	}
	return pendingOf(m.migrations, done, m.database)
}

func (m *migrator) applyUnderLease(ctx context.Context) (err error) {
	lease, err := m.acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.release(ctx)) }()
	if err := m.exec(ctx, migrationsTable); err != nil {
		return fmt.Errorf("create table schema_migrations: %w", err)
	}
	pending, err := m.pending(ctx)
	if err != nil {
		return err
	}
	for _, migration := range pending {
		if err := m.apply(ctx, lease, migration); err != nil {
			return err
		}
		m.logger.InfoContext(ctx, "applied migration", slog.String("file", migration.File()), slog.String("database", m.database))
	}
	return nil
}

func (m *migrator) apply(ctx context.Context, lease *schemaLease, migration schema.Migration) error {
	if err := lease.check(ctx); err != nil {
		return err
	}
	for i, statement := range migration.Statements {
		err := m.exec(ctx, statement)
		if errors.Is(err, ErrQuery) {
			err = fmt.Errorf("%w (ClickHouse %s or later with its ordinary features): %w", ErrFeature, MinServerVersion, err)
		}
		if err != nil {
			return fmt.Errorf("migration %s, statement %d of %d: %w", migration.File(), i+1, len(migration.Statements), err)
		}
	}
	err := m.conn.Exec(syncInsert(ctx), "INSERT INTO schema_migrations (version, name, sha256) VALUES (?, ?, ?)",
		migration.Version, migration.Name, migration.SHA256)
	return translate(ctx, "record migration "+migration.File(), err)
}

func (m *migrator) exec(ctx context.Context, statement string) error {
	return translateQuery(ctx, "change the schema", m.conn.Exec(ctx, m.variant.Render(statement)))
}

func syncInsert(ctx context.Context) context.Context {
	return clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"async_insert": 0}))
}

// CheckSchema says whether this program can use the database: [ErrSchemaNewer] and [ErrSchemaChanged] when it can't, nil
// when it can, if need be after [ClickHouse.Migrate]. It changes nothing.
func (c *ClickHouse) CheckSchema(ctx context.Context) error {
	if err := c.checkSchema(ctx); err != nil && !errors.Is(err, ErrSchemaOlder) {
		return err
	}
	return nil
}

// checkSchema compares the database with the migrations of package schema.
func (c *ClickHouse) checkSchema(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	done, err := appliedMigrations(bounded, c.conn)
	if err != nil {
		return err
	}
	known, err := schema.Migrations()
	if err != nil {
		return fmt.Errorf("load migrations: %w", err)
	}
	pending, err := pendingOf(known, done, c.database)
	if err != nil {
		return err
	}
	if len(pending) > 0 {
		return fmt.Errorf("%w: database %s lacks %s: run the migrations", ErrSchemaOlder, c.database, pending[0].File())
	}
	return nil
}
