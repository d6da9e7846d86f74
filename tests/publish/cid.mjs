// The content id of a folder's files by the JavaScript importer: node cid.mjs PACKAGES FOLDER PROFILE
import { createReadStream, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

const [packages, folder, profile] = process.argv.slice(2)
const require = createRequire(join(resolve(packages), 'x.js'))
const load = name => import(pathToFileURL(require.resolve(name)))
const { importer } = await load('ipfs-unixfs-importer')
const { MemoryBlockstore } = await load('blockstore-core')

const files = readdirSync(folder, { recursive: true, withFileTypes: true })
  .filter(e => e.isFile())
  .map(e => join(e.path ?? e.parentPath, e.name))
let root
for await (const entry of importer(files.map(f => ({ path: 'root/' + f.slice(folder.length + 1), content: createReadStream(f) })),
  new MemoryBlockstore(), { profile, wrapWithDirectory: false })) root = entry.cid
console.log(root.toString())
