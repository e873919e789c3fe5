// What TypeScript's own compiler says of the symbols of a project: node compiler.mjs TYPESCRIPT TOP TSCONFIG PATH...
// All files given are one program with the options of TSCONFIG. First prints their declarations, one line of JSON each,
// and an empty line; then for each place on standard input, [path, line, column], its references and definitions.
// Lines count from 1, columns from 0.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const [typescript, top, config, ...paths] = process.argv.slice(2)
const ts = createRequire(import.meta.url)(typescript)
const { options } = ts.getParsedCommandLineOfConfigFile(config, {}, { ...ts.sys, onUnRecoverableConfigFileDiagnostic() {} })
const texts = new Map()
const host = {
  ...ts.sys,
  useCaseSensitiveFileNames: () => true,
  getScriptFileNames: () => paths,
  getScriptVersion: () => '1',
  getScriptSnapshot(path) {
    if (!texts.has(path)) texts.set(path, ts.sys.readFile(path))
    const text = texts.get(path)
    return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text)
  },
  getCurrentDirectory: () => top,
  getCompilationSettings: () => options,
  getDefaultLibFileName: one => ts.getDefaultLibFilePath(one)
}
const service = ts.createLanguageService(host)
const program = service.getProgram()
const kinds = new Map([
  [ts.SyntaxKind.FunctionDeclaration, 'function'],
  [ts.SyntaxKind.MethodDeclaration, 'method'],
  [ts.SyntaxKind.ClassDeclaration, 'class'],
  [ts.SyntaxKind.InterfaceDeclaration, 'class'],
  [ts.SyntaxKind.TypeAliasDeclaration, 'class'],
  [ts.SyntaxKind.VariableDeclaration, 'variable'],
  [ts.SyntaxKind.PropertyDeclaration, 'variable']
])

function place(path, position) {
  const { line, character } = program.getSourceFile(path).getLineAndCharacterOfPosition(position)
  return [path, line + 1, character]
}

function declarations(file) {
  const found = []
  const visit = node => {
    if (kinds.has(node.kind) && node.name && ts.isIdentifier(node.name)) found.push(node)
    if (!ts.isFunctionLike(node)) ts.forEachChild(node, visit) // what a body declares is local
  }
  visit(file)
  return found
}

for (const path of paths) {
  const file = program.getSourceFile(path)
  for (const node of file ? declarations(file) : []) {
    const at = place(path, node.name.getStart(file))
    console.log(JSON.stringify({ kind: kinds.get(node.kind), name: node.name.text, at }))
  }
}
console.log('')
for await (const line of createInterface({ input: process.stdin })) {
  const [path, row, column] = JSON.parse(line)
  const position = program.getSourceFile(path).getPositionOfLineAndCharacter(row - 1, column)
  const places = found =>
    (found ?? []).filter(one => paths.includes(one.fileName)).map(one => place(one.fileName, one.textSpan.start))
  const references = (service.findReferences(path, position) ?? []).flatMap(one => one.references)
  const definitions = service.getDefinitionAtPosition(path, position)
  console.log(JSON.stringify({ references: places(references), definitions: places(definitions) }))
}
