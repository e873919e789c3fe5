// Answers which lines of a Go module refer to a symbol, by the type checker of Go's own library.
//
// Reads lines [path, line, column] (from 1; the column in bytes) and prints for each {"definition", "same", "related"}:
// the place that defines it, the lines that mean the same object, and those that mean it or a method that implements
// it, or that it implements.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
)

type listed struct {
	ImportPath, Dir, Export, Name string
	GoFiles                       []string
	ImportMap                     map[string]string
	Standard                      bool
}

type place struct {
	Path string
	Line int
}

func (p place) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.Path, p.Line}) }

type answer struct {
	Definition *place  `json:"definition"`
	Same       []place `json:"same"`
	Related    []place `json:"related"`
}

var (
	fset     = token.NewFileSet()
	exports  = map[string]string{}
	checked  = map[string]*types.Package{}
	files    = map[string]*ast.File{}
	uses     = map[token.Pos][]token.Pos{} // the places of identifiers, by the place of what they mean
	meaning  = map[token.Pos]types.Object{}
	standard types.Importer

	namedTypes []types.Type
	seen       = map[types.Type]bool{}
)

type imports map[string]string

func (m imports) Import(path string) (*types.Package, error) {
	if mapped, ok := m[path]; ok {
		path = mapped
	}
	if found, ok := checked[path]; ok {
		return found, nil
	}
	return standard.Import(path)
}

func origin(object types.Object) types.Object {
	switch one := object.(type) {
	case *types.Func:
		return one.Origin()
	case *types.Var:
		return one.Origin()
	}
	return object
}

// key returns where an object is defined; what is built in is all of one place, but for the method of error.
func key(object types.Object) token.Pos {
	if _, ok := object.(*types.Func); ok && !object.Pos().IsValid() {
		return -1
	}
	return object.Pos()
}

func collect(one types.Type) {
	switch found := one.(type) {
	case *types.Named:
		if found.TypeParams() != nil {
			return
		}
	case *types.Interface: // without a name, such as in an assertion
	default:
		return
	}
	if !seen[one] {
		seen[one] = true
		namedTypes = append(namedTypes, one)
	}
}

func check(one listed) {
	var parsed []*ast.File
	for _, name := range one.GoFiles {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(one.Dir, name)
		}
		if files[path] == nil {
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				continue
			}
			files[path] = file
		}
		parsed = append(parsed, files[path])
	}
	info := &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Types: map[ast.Expr]types.TypeAndValue{},
	}
	config := types.Config{Importer: imports(one.ImportMap), Error: func(err error) { fmt.Fprintln(os.Stderr, err) }}
	result, _ := config.Check(one.ImportPath, fset, parsed, info)
	checked[one.ImportPath] = result
	for expression, found := range info.Types {
		if _, ok := expression.(*ast.InterfaceType); ok {
			collect(found.Type)
		}
	}
	for _, imported := range result.Imports() {
		for _, name := range imported.Scope().Names() {
			if object, ok := imported.Scope().Lookup(name).(*types.TypeName); ok {
				collect(object.Type())
			}
		}
	}
	for _, found := range []map[*ast.Ident]types.Object{info.Defs, info.Uses} {
		for identifier, object := range found {
			if object == nil {
				continue
			}
			object = origin(object)
			uses[key(object)] = append(uses[key(object)], identifier.Pos())
			if name, ok := object.(*types.TypeName); ok {
				collect(name.Type())
			}
			if _, isType := meaning[identifier.Pos()].(*types.TypeName); !isType { // of an embedded type rather its type
				meaning[identifier.Pos()] = object
			}
		}
	}
}

// related returns the methods that implement a method, and those that it implements.
func related(target types.Object) []types.Object {
	method, ok := target.(*types.Func)
	if !ok || method.Type().(*types.Signature).Recv() == nil {
		return nil
	}
	var found []types.Object
	for _, object := range meaningAt(method) {
		receiver := object.Type().(*types.Signature).Recv().Type()
		if pointer, ok := receiver.(*types.Pointer); ok {
			receiver = pointer.Elem()
		}
		for _, one := range namedTypes {
			if corresponds(receiver, one) {
				other, _, _ := types.LookupFieldOrMethod(types.NewPointer(one), true, object.Pkg(), object.Name())
				if types.IsInterface(one) {
					other, _, _ = types.LookupFieldOrMethod(one, true, object.Pkg(), object.Name())
				}
				if _, isMethod := other.(*types.Func); isMethod {
					found = append(found, origin(other))
				}
			}
		}
	}
	return found
}

// meaningAt returns the method in every variant of its package.
func meaningAt(method *types.Func) []*types.Func {
	var found []*types.Func
	for _, one := range namedTypes {
		if typed, ok := one.(*types.Named); ok {
			for number := 0; number < typed.NumMethods(); number++ {
				if typed.Method(number).Pos() == method.Pos() {
					found = append(found, typed.Method(number))
				}
			}
		}
		if face, ok := one.Underlying().(*types.Interface); ok {
			for number := 0; number < face.NumExplicitMethods(); number++ {
				if face.ExplicitMethod(number).Pos() == method.Pos() {
					found = append(found, face.ExplicitMethod(number))
				}
			}
		}
	}
	return found
}

func corresponds(one, other types.Type) bool {
	if types.IsInterface(other) && other.Underlying().(*types.Interface).NumMethods() > 0 {
		face := other.Underlying().(*types.Interface)
		return types.Implements(one, face) || types.Implements(types.NewPointer(one), face)
	}
	if face, ok := one.Underlying().(*types.Interface); ok && !types.IsInterface(other) {
		return types.Implements(other, face) || types.Implements(types.NewPointer(other), face)
	}
	return false
}

func at(position token.Pos) place {
	found := fset.Position(position)
	return place{found.Filename, found.Line}
}

func lines(objects ...types.Object) []place {
	seen := map[place]bool{}
	result := []place{}
	for _, object := range objects {
		for _, position := range uses[key(object)] {
			if one := at(position); !seen[one] {
				seen[one] = true
				result = append(result, one)
			}
		}
	}
	sort.Slice(result, func(i, j int) bool {
		return result[i].Path < result[j].Path || result[i].Path == result[j].Path && result[i].Line < result[j].Line
	})
	return result
}

func main() {
	command := exec.Command("go", "list", "-e", "-export", "-json", "-deps", "-test", "./...")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		panic(err)
	}
	standard = importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	decoder := json.NewDecoder(output)
	for {
		var one listed
		if err := decoder.Decode(&one); err == io.EOF {
			break
		} else if err != nil {
			panic(err)
		}
		exports[one.ImportPath] = one.Export
		if !one.Standard && filepath.Ext(one.ImportPath) != ".test" {
			check(one)
		}
	}
	identifiers := map[string]map[int][]token.Pos{}
	for position := range meaning {
		found := fset.Position(position)
		if identifiers[found.Filename] == nil {
			identifiers[found.Filename] = map[int][]token.Pos{}
		}
		identifiers[found.Filename][found.Line] = append(identifiers[found.Filename][found.Line], position)
	}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var question struct {
			path         string
			line, column int
		}
		words := []any{&question.path, &question.line, &question.column}
		if err := json.Unmarshal(input.Bytes(), &words); err != nil {
			panic(err)
		}
		var result *answer
		for _, position := range identifiers[question.path][question.line] {
			if fset.Position(position).Column == question.column {
				object := meaning[position]
				definition := at(object.Pos())
				result = &answer{&definition, lines(object), lines(append(related(object), object)...)}
			}
		}
		text, _ := json.Marshal(result)
		fmt.Println(string(text))
	}
}
