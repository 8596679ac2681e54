package store

// Of the Milvus index, for tests in package store_test.
var (
	ParseMilvusVersion = parseMilvusVersion
	UpsertsByPartition = upsertsByPartition
)
