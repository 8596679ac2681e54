package schema

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var createView = regexp.MustCompile(`(?m)^CREATE (?:OR REPLACE )?VIEW (?:IF NOT EXISTS )?([a-z_]+)`)

// View is a view that people and programs may ask.
type View struct {
	Name string
	// Purpose says in whole sentences what a row means and how it is counted.
	Purpose string
	// Example is a query that works as it stands in the database, also when there is no data.
	Example string
}

// Views returns all views in the order in which they were made. They are described in the migrations, by the comment
// before each. A view that a later migration replaces is described by that one.
func Views() ([]View, error) {
	migrations, err := Migrations()
	if err != nil {
		return nil, err
	}
	var out []View
	for _, m := range migrations {
		for _, statement := range m.Statements {
			view, is, err := parseView(statement)
			if err != nil {
				return nil, fmt.Errorf("migration %s: %w", m.File(), err)
			}
			if !is {
				continue
			}
			out = slices.DeleteFunc(out, func(v View) bool { return v.Name == view.Name })
			out = append(out, view)
		}
	}
	return out, nil
}

// parseView reads the comment before a view: its purpose, a line `Example:`, and the query.
func parseView(statement string) (view View, is bool, err error) {
	name := createView.FindStringSubmatch(statement)
	if name == nil {
		return View{}, false, nil
	}
	var purpose, example []string
	into := &purpose
	for line := range strings.Lines(statement) {
		text, comment := strings.CutPrefix(strings.TrimSpace(line), "--")
		if !comment {
			break
		}
		if text = strings.TrimSpace(text); text == "Example:" {
			into = &example
			continue
		}
		*into = append(*into, text)
	}
	if len(purpose) == 0 || len(example) == 0 {
		return View{}, true, fmt.Errorf("view %s: the comment before it must say its purpose and end with an example", name[1])
	}
	return View{Name: name[1], Purpose: strings.Join(purpose, " "), Example: strings.Join(example, "\n")}, true, nil
}
