package schema

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// ErrVariant means that a [Variant] cannot be rendered.
var ErrVariant = errors.New("invalid variant of the schema")

var (
	fileName    = regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.sql$`)
	clusterName = regexp.MustCompile(`^[A-Za-z0-9_.{}-]{1,128}$`)
	engineName  = regexp.MustCompile(`\bENGINE = ((?:Replacing|Summing|Aggregating|Collapsing)?MergeTree)\b`)
)

// clusterMark is where the name of a cluster goes in a statement.
const clusterMark = "/* ON CLUSTER */"

// Migration is one numbered file of the ClickHouse schema.
type Migration struct {
	// Version counts from 1 without gaps.
	Version uint32
	// Name is the file's name without its number and ending, for example `events_and_tasks`.
	Name string
	// Statements are the file's statements in order, with their comments and without the closing semicolon. Each can
	// be repeated. Render them for the server at hand with [Variant.Render].
	Statements []string
	// SHA256 is the checksum of the file in hexadecimal.
	SHA256 string
}

// File is the migration's file name.
func (m Migration) File() string { return fmt.Sprintf("%04d_%s.sql", m.Version, m.Name) }

// Migrations returns all migrations in order. It fails only when the embedded files break the rules above.
func Migrations() ([]Migration, error) {
	files, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	out := make([]Migration, 0, len(files))
	for i, file := range files {
		text, err := migrationFiles.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		m, err := parseMigration(path.Base(file), string(text))
		if err != nil {
			return nil, err
		}
		if int(m.Version) != i+1 {
			return nil, fmt.Errorf("migration %s: its number should be %04d", file, i+1)
		}
		out = append(out, m)
	}
	return out, nil
}

func parseMigration(file, text string) (Migration, error) {
	parts := fileName.FindStringSubmatch(file)
	if parts == nil {
		return Migration{}, fmt.Errorf("migration %s: its name should be like 0001_what_it_does.sql", file)
	}
	version, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return Migration{}, fmt.Errorf("migration %s: %w", file, err)
	}
	sum := sha256.Sum256([]byte(text))
	return Migration{
		Version: uint32(version), Name: parts[2], Statements: split(text), SHA256: hex.EncodeToString(sum[:]),
	}, nil
}

// split cuts a file into statements, which end with a semicolon at the end of a line. Text that has only comments is
// no statement.
func split(text string) []string {
	var out []string
	var current []string
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		comment := strings.HasPrefix(strings.TrimSpace(line), "--")
		if end, found := strings.CutSuffix(line, ";"); found && !comment {
			out = append(out, strings.TrimSpace(strings.Join(append(current, end), "\n")))
			current, code = nil, false
			continue
		}
		if line == "" && !code {
			current = nil // A comment that is followed by an empty line belongs to the file, not to the statement.
			continue
		}
		code = code || !comment
		current = append(current, line)
	}
	return out
}

// Variant says for what kind of server a statement is rendered. The zero value is a single server.
type Variant struct {
	// Cluster is the ClickHouse cluster on which every statement runs; empty means only the server that is asked.
	Cluster string
	// Replicated makes every MergeTree engine its replicated kind. The servers must have default_replica_path and
	// default_replica_name set, as they have by default.
	Replicated bool
}

// Validate checks the variant. The error is [ErrVariant].
func (v Variant) Validate() error {
	if v.Cluster != "" && !clusterName.MatchString(v.Cluster) {
		return fmt.Errorf("%w: cluster %q: it must be 1 to 128 letters, digits and any of _ . { } -", ErrVariant, v.Cluster)
	}
	return nil
}

// OnCluster is the clause that names the cluster, or nothing.
func (v Variant) OnCluster() string {
	if v.Cluster == "" {
		return ""
	}
	return "ON CLUSTER '" + v.Cluster + "'"
}

// Render gives the statement for the variant, which must be valid.
func (v Variant) Render(statement string) string {
	statement = strings.ReplaceAll(statement, clusterMark, v.OnCluster())
	if v.Replicated {
		statement = engineName.ReplaceAllString(statement, "ENGINE = Replicated$1")
	}
	return statement
}
