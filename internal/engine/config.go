package engine

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
)

// configFile is the engine's configuration. It is given by name, or else the
// library would read config.xml of the working directory or of the home.
func configFile(dir string) string { return filepath.Join(dir, "config.xml") }

// serverConfig bounds the engine for a laptop: by default it sizes its caches
// and thread pools for a server of its own. No system log table is
// configured, so none is written.
type serverConfig struct {
	XMLName xml.Name `xml:"clickhouse"`
	Path    string   `xml:"path"`
	TmpPath string   `xml:"tmp_path"`

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
	MaxIOThreadPoolFreeSize    int `xml:"max_io_thread_pool_free_size"`
}

// writeConfig writes the configuration for this run.
func writeConfig(dir string, o ClickHouseOptions) error {
	const mib = 1 << 20
	c := serverConfig{
		Path:                 filepath.Join(dir, "data") + string(filepath.Separator),
		TmpPath:              filepath.Join(dir, "data", "tmp") + string(filepath.Separator),
		MaxServerMemoryUsage: o.MaxMemory,

		MarkCacheSize:                  64 * mib,
		IndexMarkCacheSize:             32 * mib,
		PrimaryIndexCacheSize:          64 * mib,
		VectorSimilarityIndexCacheSize: 256 * mib,
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
	text, err := xml.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	if err := os.WriteFile(configFile(dir), append(text, '\n'), 0o600); err != nil {
		return dirError(dir, err)
	}
	return nil
}
