// Package schema is the public description of what Hindsight stores: the numbered ClickHouse migrations, the JSON
// Schemas of snapshot, memory and rule, and the list of views with a query to try on each.
//
// Everything is embedded, so that a program carries the schema it was built with. The package only describes: it never
// connects to anything. The same text gives the same checksum on every platform, and a migration that was released is
// never changed.
package schema
