// Content ids of many shapes of files and folders by the JavaScript importer, for tests/publish/ipfs_test.cc:
//   npm install ipfs-unixfs-importer@17.1.1 blockstore-core && node tools/golden/unixfs.mjs > tests/golden/publish/unixfs.json
// A shape is a list of [path, kind, bytes]; the content of files is made by `content` below, and by the test.
import { MemoryBlockstore } from 'blockstore-core'
import { importer } from 'ipfs-unixfs-importer'

const profiles = ['kubo-v1', 'unixfs-v0-2015', 'unixfs-v1-2025']

// An xorshift of the length, so that every file is another and any program can make it.
function content (n) {
  const out = new Uint8Array(n)
  let x = (n + 1) >>> 0
  for (let i = 0; i < n; i++) {
    x ^= x << 13; x >>>= 0
    x ^= x >>> 17
    x ^= x << 5; x >>>= 0
    out[i] = x & 255
  }
  return out
}

const K = 262144, M = 1048576
// [prefix, 'series', count, suffix, width]: files prefix + number + suffix of number % 7 bytes, numbers padded with zeros.
const expand = e => e[1] !== 'series'
  ? [e]
  : Array.from({ length: e[2] }, (_, i) => [e[0] + String(i).padStart(e[4], '0') + e[3], 'file', i % 7])
const shapes = {
  empty: [['', 'file', 0]],
  one_byte: [['', 'file', 1]],
  chunk_less_one: [['', 'file', K - 1]],
  chunk: [['', 'file', K]],
  chunk_and_one: [['', 'file', K + 1]],
  megabyte: [['', 'file', M]],
  megabyte_and_one: [['', 'file', M + 1]],
  links_174: [['', 'file', 174 * K]],
  links_175: [['', 'file', 174 * K + 1]],
  two_full_nodes: [['', 'file', 348 * K]],
  empty_folder: [['', 'folder', 0]],
  one_file: [['a', 'file', 5]],
  nested: [['a/b/c', 'file', 7], ['a/d', 'file', 8], ['e', 'file', 9]],
  empty_inside: [['a', 'folder', 0], ['b/c', 'folder', 0], ['d', 'file', 1]],
  order: [['a.b', 'file', 1], ['a/x', 'file', 2], ['a-b', 'file', 3], ['B', 'file', 4], ['Z', 'file', 5]],
  unicode: [['é', 'file', 1], ['e', 'file', 2], ['日本/語', 'file', 3], ['😀', 'file', 4]],
  same_twice: [['a', 'file', K + 5], ['b', 'file', K + 5]],
  hidden: [['.a', 'file', 3], ['.b/c', 'file', 4], ['d', 'file', 5]],
  below_shard: [['file-', 'series', 4000, '', 0]],
  shard: [['file-', 'series', 6000, '', 0]],
  shard_deep: [['some longer name of a file ', 'series', 20000, '.bin', 0]],
  shard_inside: [['x', 'file', 3], ['many/n', 'series', 6500, '', 0]],
  // The threshold itself: Σ(name + id) is 262,144 for version 1 (36 bytes of id), then one byte more.
  shard_edge: [['', 'series', 4096, '', 28]],
  shard_edge_and_one: [['', 'series', 4095, '', 28], ['0000000000000000000000004095x', 'file', 0]]
}

const out = {}
for (const [name, shape] of Object.entries(shapes)) {
  out[name] = { entries: shape, cids: {} }
  for (const profile of profiles) {
    const source = shape.flatMap(expand).map(([path, kind, n]) => ({
      path: path === '' ? (kind === 'file' ? 'f' : 'root') : `root/${path}`,
      content: kind === 'file' ? content(n) : undefined
    }))
    const options = profile === 'kubo-v1' ? { cidVersion: 1, rawLeaves: true } : { profile }
    let last
    for await (const e of importer(source, new MemoryBlockstore(), options)) last = e
    out[name].cids[profile] = last.cid.toString()
  }
}
console.log('{\n' + Object.entries(out).map(([k, v]) => `${JSON.stringify(k)}: ${JSON.stringify(v)}`).join(',\n') + '\n}')
