// The content id of a file or folder by boxo, the library that Kubo itself adds files with, beside the JavaScript
// importer's of unixfs.mjs:
//   go mod init kubo_cid && go get github.com/ipfs/boxo@v0.42.0 && go run kubo_cid.go PATH PROFILE
// The shapes of tests/golden/publish/unixfs.json have the same ids by both in every profile.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ipfs/boxo/chunker"
	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs"
	"github.com/ipfs/boxo/ipld/unixfs/importer/balanced"
	"github.com/ipfs/boxo/ipld/unixfs/importer/helpers"
	uio "github.com/ipfs/boxo/ipld/unixfs/io"
	"github.com/ipfs/go-cid"
	ipld "github.com/ipfs/go-ipld-format"
)

type profile struct {
	version  int
	chunk    int64
	links    int
	estimate uio.SizeEstimationMode // when a folder becomes a HAMT
}

var profiles = map[string]profile{
	"unixfs-v0-2015": {0, 262144, 174, uio.SizeEstimationLinks},
	"kubo-v1":        {1, 262144, 174, uio.SizeEstimationLinks},
	"unixfs-v1-2025": {1, 1048576, 1024, uio.SizeEstimationBlock},
}

// Blocks in memory: folders are read back while they grow.
type memory map[string]ipld.Node

func (m memory) Add(_ context.Context, n ipld.Node) error {
	m[n.Cid().KeyString()] = n
	return nil
}

func (m memory) AddMany(ctx context.Context, nodes []ipld.Node) error {
	for _, n := range nodes {
		m.Add(ctx, n)
	}
	return nil
}

func (m memory) Get(_ context.Context, c cid.Cid) (ipld.Node, error) {
	if n, ok := m[c.KeyString()]; ok {
		return n, nil
	}
	return nil, ipld.ErrNotFound{Cid: c}
}

func (m memory) GetMany(ctx context.Context, ids []cid.Cid) <-chan *ipld.NodeOption {
	out := make(chan *ipld.NodeOption, len(ids))
	for _, c := range ids {
		n, err := m.Get(ctx, c)
		out <- &ipld.NodeOption{Node: n, Err: err}
	}
	close(out)
	return out
}

func (m memory) Remove(context.Context, cid.Cid) error       { return nil }
func (m memory) RemoveMany(context.Context, []cid.Cid) error { return nil }

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func add(blocks memory, path string, p profile) ipld.Node {
	builder := must(merkledag.PrefixForCidVersion(p.version))
	keep := func(n ipld.Node) ipld.Node {
		blocks.Add(context.Background(), n)
		return n
	}
	info := must(os.Lstat(path))
	if info.Mode()&os.ModeSymlink != 0 {
		link := merkledag.NodeWithData(must(unixfs.SymlinkData(must(os.Readlink(path)))))
		link.SetCidBuilder(builder)
		return keep(link)
	}
	if info.IsDir() {
		folder := must(uio.NewDirectory(blocks, uio.WithCidBuilder(builder), uio.WithSizeEstimationMode(p.estimate)))
		for _, entry := range must(os.ReadDir(path)) {
			child := add(blocks, filepath.Join(path, entry.Name()), p)
			must(0, folder.AddChild(context.Background(), entry.Name(), child))
		}
		return keep(must(folder.GetNode()))
	}
	file := must(os.Open(path))
	defer file.Close()
	params := helpers.DagBuilderParams{
		Dagserv: blocks, RawLeaves: p.version == 1, Maxlinks: p.links, CidBuilder: builder,
	}
	return must(balanced.Layout(must(params.New(chunk.NewSizeSplitter(file, p.chunk)))))
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "kubo_cid PATH PROFILE")
		os.Exit(2)
	}
	p, known := profiles[os.Args[2]]
	if !known {
		fmt.Fprintln(os.Stderr, "no such profile")
		os.Exit(2)
	}
	fmt.Println(add(memory{}, os.Args[1], p).Cid())
}
