package engine

import (
	"regexp"
	"slices"
	"strings"
)

// session is a pooled connection together with what has been set on it, so
// that a request pays for a SET or USE only where it differs from the one
// before.
type session struct {
	conn     *chdbConn
	database string
	settings map[string]string // beyond the profile's
	spoilt   bool              // must not be used again
}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// newSession opens a connection without the right to use file().
func (ch *ClickHouse) newSession() (*session, error) {
	conn, err := ch.lib.connect(ch.args)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, database: "default"}
	if err := s.run("SET ROLE NONE"); err != nil {
		conn.close()
		return nil, err
	}
	return s, nil
}

// prepare makes the session's database and settings those of a request.
func (s *session) prepare(database string, settings map[string]string) error {
	if err := s.set(settings); err != nil {
		return err
	}
	if database == s.database {
		return nil
	}
	if err := s.run("USE " + quoteIdentifier(database)); err != nil {
		return err
	}
	s.database = database
	return nil
}

func (s *session) set(settings map[string]string) error {
	var changes, resets []string
	for name, value := range settings {
		if old, ok := s.settings[name]; !ok || old != value {
			changes = append(changes, name+" = "+quoteString(value))
		}
	}
	for name := range s.settings {
		if _, keep := settings[name]; !keep {
			resets = append(resets, name+" = DEFAULT")
		}
	}
	if len(changes)+len(resets) == 0 {
		return nil
	}
	slices.Sort(changes)
	slices.Sort(resets)
	if err := s.run("SET " + strings.Join(append(resets, changes...), ", ")); err != nil {
		s.spoilt = true // some may have been applied
		return err
	}
	s.settings = settings
	return nil
}

// withFiles runs call with the right to use file().
func (s *session) withFiles(call func() error) error {
	if err := s.run("SET ROLE " + filesRole); err != nil {
		s.spoilt = true
		return err
	}
	err := call()
	if s.run("SET ROLE NONE") != nil {
		s.spoilt = true
	}
	return err
}

// settle frees what a failed statement holds: the library keeps its tables in
// use until the connection's next statement, and a DROP would wait for them.
func (s *session) settle() {
	if s.run("SELECT 1") != nil {
		s.spoilt = true
	}
}

func (s *session) run(sql string) error {
	r, err := s.conn.query(sql, "Null", nil)
	if err != nil {
		return err
	}
	r.close()
	return nil
}

var (
	stringEscaper     = strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	identifierEscaper = strings.NewReplacer(`\`, `\\`, "`", "\\`")
)

func quoteString(s string) string { return "'" + stringEscaper.Replace(s) + "'" }

func quoteIdentifier(s string) string { return "`" + identifierEscaper.Replace(s) + "`" }

// checkSetting refuses what cannot be a setting before it becomes SQL, and
// the one that changes how SQL is read.
func checkSetting(name, value string) error {
	switch {
	case !settingName.MatchString(name):
		return exceptionf(115, "UNKNOWN_SETTING", "%q is neither a setting nor a parameter of the HTTP interface", name)
	case name == "dialect" && value != "clickhouse":
		return exceptionf(344, "SUPPORT_IS_DISABLED", "The embedded ClickHouse speaks its own dialect only")
	}
	return nil
}
