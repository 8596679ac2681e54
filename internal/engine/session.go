package engine

import (
	"fmt"
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
	settings map[string]string // beyond the base settings
	spoilt   bool              // must not be used again
}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// prepare makes the session's database and settings those of a request.
func (s *session) prepare(database string, settings, base map[string]string) error {
	if err := s.use(settings, base); err != nil {
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

func (s *session) use(settings, base map[string]string) error {
	var changes []string
	for name, value := range settings {
		if old, ok := s.settings[name]; !ok || old != value {
			changes = append(changes, name+" = "+quoteString(value))
		}
	}
	var resets []string
	for name := range s.settings {
		if _, keep := settings[name]; keep {
			continue
		}
		if value, ok := base[name]; ok {
			resets = append(resets, name+" = "+quoteString(value))
		} else {
			resets = append(resets, name+" = DEFAULT")
		}
	}
	if len(changes)+len(resets) == 0 {
		return nil
	}
	slices.Sort(changes)
	slices.Sort(resets)
	// Resets first: a constraint left by the request before must not refuse
	// the settings of this one.
	if err := s.run("SET " + strings.Join(append(resets, changes...), ", ")); err != nil {
		s.spoilt = true // some may have been applied
		return err
	}
	s.settings = settings
	return nil
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

// checkSettingName refuses what cannot be a setting, before it becomes SQL.
func checkSettingName(name string) error {
	if settingName.MatchString(name) {
		return nil
	}
	return &Exception{Code: 115, Message: fmt.Sprintf("Code: 115. DB::Exception: Setting %q is neither a builtin setting nor a valid name. (UNKNOWN_SETTING)", name)}
}
