package engine

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"
)

// layout are the places inside DataDir/clickhouse.
type layout struct{ dir string }

func (l layout) config() string    { return filepath.Join(l.dir, "config.xml") }
func (l layout) users() string     { return filepath.Join(l.dir, "users.xml") }
func (l layout) data() string      { return filepath.Join(l.dir, "data") }
func (l layout) userFiles() string { return filepath.Join(l.dir, "user_files") }

// startLog gets the engine's errors when it does not start.
func (l layout) startLog() string { return filepath.Join(l.dir, "start.log") }

// overlayDatabase is libchdb's database in which table names are file names.
// It would be called "default"; it is given another name here and detached.
const overlayDatabase = "_file_names"

// filesRole may use file(). A session has it only for a statement whose paths
// were checked.
const filesRole = "files"

// serverConfig bounds the engine for a laptop: by default it sizes its caches
// and thread pools for a server of its own. No system log table is
// configured, so none is written.
type serverConfig struct {
	XMLName         xml.Name   `xml:"clickhouse"`
	Path            string     `xml:"path"`
	UsersConfig     string     `xml:"users_config"`
	DefaultDatabase string     `xml:"default_database"`
	Logger          *logConfig `xml:"logger,omitempty"`

	// A table engine needs a grant: some of them read files or run commands.
	TableEnginesRequireGrant bool `xml:"access_control_improvements>table_engines_require_grant"`

	MaxServerMemoryUsage int64 `xml:"max_server_memory_usage"`

	MarkCacheSize                  int64 `xml:"mark_cache_size"`
	UncompressedCacheSize          int64 `xml:"uncompressed_cache_size"`
	IndexMarkCacheSize             int64 `xml:"index_mark_cache_size"`
	PrimaryIndexCacheSize          int64 `xml:"primary_index_cache_size"`
	VectorSimilarityIndexCacheSize int64 `xml:"vector_similarity_index_cache_size"`
	TextIndexTokensCacheSize       int64 `xml:"text_index_tokens_cache_size"`
	TextIndexHeaderCacheSize       int64 `xml:"text_index_header_cache_size"`
	TextIndexPostingsCacheSize     int64 `xml:"text_index_postings_cache_size"`
	QueryConditionCacheSize        int64 `xml:"query_condition_cache_size"`
	ParquetMetadataCacheSize       int64 `xml:"parquet_metadata_cache_size"`
	IcebergMetadataCacheSize       int64 `xml:"iceberg_metadata_files_cache_size"`
	CompiledExpressionCacheSize    int64 `xml:"compiled_expression_cache_size"`

	BackgroundPoolSize         int `xml:"background_pool_size"`
	BackgroundMovePoolSize     int `xml:"background_move_pool_size"`
	BackgroundFetchesPoolSize  int `xml:"background_fetches_pool_size"`
	BackgroundCommonPoolSize   int `xml:"background_common_pool_size"`
	BackgroundSchedulePoolSize int `xml:"background_schedule_pool_size"`
	BuildVectorIndexPoolSize   int `xml:"max_build_vector_similarity_index_thread_pool_size"`
	MaxThreadPoolFreeSize      int `xml:"max_thread_pool_free_size"`
}

type logConfig struct {
	Log  string `xml:"log"`
	Size string `xml:"size"`
}

// usersConfig is the one user: everything inside databases, and nothing that
// reaches files, commands or the access rules themselves.
type usersConfig struct {
	XMLName  xml.Name    `xml:"clickhouse"`
	Settings settingsXML `xml:"profiles>default"`
	Files    []string    `xml:"roles>files>grants>query"`
	User     struct {
		Password string   `xml:"password"`
		Network  string   `xml:"networks>ip"`
		Profile  string   `xml:"profile"`
		Quota    string   `xml:"quota"`
		Grants   []string `xml:"grants>query"`
	} `xml:"users>default"`
	Quota string `xml:"quotas>default"`
}

// settingsXML writes a profile: an element for each setting.
type settingsXML map[string]string

// MarshalXML implements xml.Marshaler.
func (s settingsXML) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	if err := e.EncodeToken(start); err != nil {
		return err
	}
	for name, value := range s {
		if err := e.EncodeElement(value, xml.StartElement{Name: xml.Name{Local: name}}); err != nil {
			return err
		}
	}
	return e.EncodeToken(start.End())
}

// settings are in force unless a request says otherwise.
func settings(o ClickHouseOptions) settingsXML {
	return settingsXML{
		"max_memory_usage": strconv.FormatInt(o.MaxQueryMemory, 10),
		"max_threads":      "2",
		"session_timezone": "UTC",
		// The writers batch; waiting for a second batch only adds delay.
		"async_insert": "0",
		// libchdb would take "1 + 1" for a statement; a server does not.
		"implicit_select": "0",
		// It would allow functions that show addresses of the process.
		"allow_introspection_functions": "0",
		// A mapped file that shrinks would end the process.
		"storage_file_read_method": "pread",
		// A statement that nobody waits for ends by itself.
		"max_execution_time": strconv.Itoa(int(o.MaxExecutionTime.Seconds())),
	}
}

// writeConfig writes the configuration for this run. Logging is for a start
// that failed.
func writeConfig(l layout, o ClickHouseOptions, logging bool) error {
	const mib = 1 << 20
	slash := string(filepath.Separator)
	server := serverConfig{
		Path:            l.data() + slash,
		UsersConfig:     l.users(),
		DefaultDatabase: overlayDatabase,

		TableEnginesRequireGrant: true,
		MaxServerMemoryUsage:     o.MaxMemory,

		MarkCacheSize:         64 * mib,
		IndexMarkCacheSize:    32 * mib,
		PrimaryIndexCacheSize: 64 * mib,
		// A vector index that does not fit as a whole is read from the disk at every search: 0.27 GB for 100,000 vectors of
		// 384 dimensions, with which a search takes 20 ms instead of 200.
		VectorSimilarityIndexCacheSize: o.MaxMemory / 2,
		TextIndexTokensCacheSize:       32 * mib,
		TextIndexHeaderCacheSize:       32 * mib,
		TextIndexPostingsCacheSize:     64 * mib,
		QueryConditionCacheSize:        8 * mib,
		ParquetMetadataCacheSize:       8 * mib,
		IcebergMetadataCacheSize:       mib,
		CompiledExpressionCacheSize:    16 * mib,

		BackgroundPoolSize:         2,
		BackgroundMovePoolSize:     1,
		BackgroundFetchesPoolSize:  1,
		BackgroundCommonPoolSize:   2,
		BackgroundSchedulePoolSize: 4,
		BuildVectorIndexPoolSize:   2,
		MaxThreadPoolFreeSize:      16,
	}
	if logging {
		server.Logger = &logConfig{Log: l.startLog(), Size: "1M"}
	}
	users := usersConfig{
		Settings: settings(o),
		Files:    []string{"GRANT READ, WRITE ON FILE"},
	}
	users.User.Network = "::/0"
	users.User.Profile, users.User.Quota = "default", "default"
	users.User.Grants = []string{
		"GRANT SHOW, SELECT, INSERT, ALTER, CREATE DATABASE, CREATE TABLE, CREATE VIEW, CREATE FUNCTION, CREATE TEMPORARY TABLE, " +
			"DROP DATABASE, DROP TABLE, DROP VIEW, DROP DICTIONARY, DROP FUNCTION, UNDROP TABLE, TRUNCATE, OPTIMIZE, CHECK, KILL QUERY, " +
			"SYSTEM MERGES, SYSTEM TTL MERGES, SYSTEM FLUSH, SYSTEM DROP CACHE ON *.*",
		"GRANT READ, WRITE ON S3",
		"GRANT READ, WRITE ON REMOTE",
		"GRANT " + filesRole,
	}
	for _, engine := range []string{
		"MergeTree", "ReplacingMergeTree", "SummingMergeTree", "AggregatingMergeTree", "CollapsingMergeTree",
		"VersionedCollapsingMergeTree", "CoalescingMergeTree", "Memory", "Null", "Log", "TinyLog", "StripeLog", "Buffer", "Merge", "Set",
		"Join", "View", "MaterializedView", "Atomic",
	} {
		users.User.Grants = append(users.User.Grants, "GRANT TABLE ENGINE ON "+engine)
	}
	return errors.Join(writeXML(l.config(), server), writeXML(l.users(), users))
}

func writeXML(path string, v any) error {
	text, err := xml.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return dirError(filepath.Dir(path), err)
	}
	return nil
}

// prepareDefault lets the engine find an ordinary database "default", which
// each connection begins in. The file-name database would otherwise take its
// name, and takes its identity from the link: the engine makes that anew.
func prepareDefault(l layout) error {
	metadata := filepath.Join(l.data(), "metadata")
	if err := os.MkdirAll(metadata, 0o700); err != nil {
		return dirError(metadata, err)
	}
	link := filepath.Join(metadata, "default")
	if info, err := os.Lstat(link); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if err := os.Remove(link); err != nil {
			return dirError(metadata, err)
		}
	}
	file := link + ".sql"
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("make an id for the default database: %w", err)
	}
	text := fmt.Sprintf("ATTACH DATABASE _ UUID '%s'\nENGINE = Atomic\n", id)
	if err := os.WriteFile(file+".tmp", []byte(text), 0o600); err != nil {
		return dirError(metadata, err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return dirError(metadata, err)
	}
	return nil
}
