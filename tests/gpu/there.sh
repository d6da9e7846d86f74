#!/bin/bash
# On a GPU machine, in a checkout, with what pack.py made of it: unpacks, then runs what is named.
# usage: there.sh CARRY_FOLDER OUT WHAT…      WHAT: as:8.6 (what follows treats the card as one of that compute capability; as: ends it) tests suite ranks every families variants verbs trajectory[:lora|full|lora/fp8…] 'shakespeare [--peer]' sanitizer step steps fp8 kernels 'hero FLAGS…' (bench/gpu/hero.py) 'decode FLAGS…' (bench/gpu/decode.py, wants CARRY_FOLDER/smollm2), or a command in quotes ($MINDXTRAIN starts the binary)
#        'cpu lora|shakespeare|qwen3|gsm8k…': CPU benches of bench/cpu with two cores of their own, beside all that is named after it
#        (gsm8k wants CARRY_FOLDER/smollm2: the tokenizer's files, train.jsonl, test.jsonl)
C=$(realpath "$1") R=$2; shift 2
O=/tmp/mxt_out; rm -rf $O; mkdir -p "$R" $O; R=$(realpath "$R")
keep() { tar -C $O -czf "$R/logs.tgz" --exclude=dataset --exclude='checkpoint*' .; }  # few files come back from such a machine
M=/tmp/mxt
begin=$(date +%s)
if [ ! -f $M/packed ] || [ "$(cat $M/packed)" != "$(sha256sum < "$C/pack.tar.xz")" ]; then
  rm -rf $M; mkdir -p $M && tar -C $M -xJf "$C/pack.tar.xz" || exit 1
  # This checkout stands where the programs look for it, and they stand where its tests look for them.
  ROOT=$(sed -n 1p $M/root.txt) BUILD=$(sed -n 2p $M/root.txt)
  [ -e "$ROOT" ] || { mkdir -p "$(dirname "$ROOT")" && ln -sfn "$PWD" "$ROOT"; }
  ln -sfn "$PWD" $M/src
  SP=$(python3 -c "import nvidia; print(list(nvidia.__path__)[0])")
  nv=$SP/cu13/lib:$SP/cudnn/lib:/usr/local/cuda/lib64
  start() { printf '#!/bin/bash\nexport LD_LIBRARY_PATH=%s\nexec %s "$@"\n' "$M/own:$nv" "$M/bin/$1"; }
  start mindxtrain > $M/probe; chmod +x $M/probe
  $M/probe --version > /dev/null 2>&1 || start() { printf '#!/bin/bash\nexec %s --library-path %s %s "$@"\n' "$M/system/loader" "$M/own:$M/system:$nv:/usr/lib/x86_64-linux-gnu:/usr/local/nvidia/lib64" "$M/bin/$1"; }
  while read -r name path; do
    mkdir -p "$(dirname "$BUILD/$path")"; start $name > "$BUILD/$path"; start $name > $M/$name; chmod +x "$BUILD/$path" $M/$name
  done < $M/programs.txt
  sha256sum < "$C/pack.tar.xz" > $M/packed
fi
echo "== unpacked: $(($(date +%s) - begin)) s"
here=$M/src/tests/gpu
$M/mindxtrain version || exit 1
nvidia-smi --query-gpu=name,driver_version,power.limit,clocks.max.sm --format=csv,noheader | tee "$O/gpu.txt"; nproc
export MINDXTRAIN=$M/mindxtrain OUT_FOLDER=$O
status=0
# NAME COUNT SECONDS COMMAND…: the op tests cut into COUNT parts side by side (the host's references take most of their time), a log each.
shards() {
  local name=$1 n=$2 seconds=$3 i pids=() code=0; shift 3
  for ((i = 0; i < n; i++)); do GTEST_TOTAL_SHARDS=$n GTEST_SHARD_INDEX=$i OMP_NUM_THREADS=2 timeout "$seconds" "$@" > "$O/$name$i.log" 2>&1 & pids+=($!); done
  for i in "${pids[@]}"; do wait "$i" || code=$?; done
  return $code
}
for what in "$@"; do
  begin=$(date +%s)
  case $what in
    as:*) export MINDXTRAIN_CUDA_CAPABILITY=${what#as:}; continue ;;
    tests) shards tests 4 240 $M/gpu_ops_test --gtest_brief=1 || status=1; grep -hn 'FAILED\|Failure\|PASSED\|SKIPPED\|Which\|error\b' "$O"/tests?.log | head -40 ;;
    suite) shards suite 8 400 $M/gpu_suite_test --gtest_brief=1 || status=1; grep -hn 'FAILED\|Failure\|PASSED\|error\b' "$O"/suite?.log | head -40 ;;
    every) # every test program that was packed, eight at a time
      mkdir -p "$O/every"; cut -d' ' -f1 $M/programs.txt | grep _test | xargs -P 8 -I{} bash -c "MINDXTRAIN_HOME=/tmp/mxt_home/{} timeout ${EVERY_S:-400} $M/{} --gtest_brief=1 > $O/every/{}.log 2>&1; echo \$? > $O/every/{}.rc"
      for f in "$O"/every/*.rc; do n=$(basename $f .rc); echo "$n: exit $(cat $f), $(grep -c '^\[  SKIPPED' $O/every/$n.log) skipped, $(grep PASSED $O/every/$n.log)"; [ "$(cat $f)" = 0 ] || { status=1; grep -h 'FAILED\|Failure' "$O/every/$n.log" | head -12; }; done ;;
    cpu*) mkdir -p $M/build/apps/mindxtrain $M/build/bench/kernels "$O/cpu" && ln -sf $M/mindxtrain $M/build/apps/mindxtrain/ && ln -sf $M/gemm_bench $M/build/bench/kernels/
      taskset -cp 2-$(($(nproc) - 1)) $$ > /dev/null
      (cd $M/src/bench/cpu || exit; export OMP_NUM_THREADS=2
       two() { n=${1%.py}; taskset -c 0,1 timeout 300 python3 "$@" --build $M/build --threads 2 > "$O/cpu/$n.json" 2> "$O/cpu/$n.err"; echo "$n: exit $?"; tail -n 1 "$O/cpu/$n.json"; tail -n 2 "$O/cpu/$n.err"; }
       lscpu > "$O/cpu/lscpu.txt"
       for n in ${what#cpu}; do
         case $n in
           lora) two lora_step.py random --rounds 2 --steps 16 ;;
           shakespeare) two shakespeare.py --seeds 1337 ;;
           qwen3) two qwen3_lora_step.py --rounds 2 ;;
           gsm8k) two gsm8k_smollm2_lora.py random --tokenizer "$C/smollm2" --train "$C/smollm2/train.jsonl" --held "$C/smollm2/test.jsonl" --steps 20 ;;
         esac
       done) > "$O/cpu/log.txt" 2>&1 & ;;
    verbs) python3 "$here/verbs.py" $M/mindxtrain "$O/verbs" || status=1; cp "$O/verbs/verbs.json" "$O/" ;;
    ranks) # adapters of every rank that kernels of one pass have, and of others beside them
      for r in 8 12 16 24 32 64; do for t in bf16 fp8; do
        echo "rank $r $t: $($M/gpu_step 0.6b 16 2048 8 12 lora:$r none $t 2> "$O/rank$r$t.err" | tee "$O/rank$r$t.json" | tail -1)"; done; done
      for r in 16 32; do echo "8b rank $r: $($M/gpu_step 8b 8 4096 2 8 lora:$r none bf16 2> "$O/hero$r.err" | tee "$O/hero$r.json" | tail -1)"; done ;;
    step) $M/gpu_step 8b 8 4096 2 12 lora none bf16 joined profile > "$O/step$MINDXTRAIN_CUDA_CAPABILITY.json" 2> "$O/step.err" || { status=1; tail -5 "$O/step.err"; }; cat "$O/step$MINDXTRAIN_CUDA_CAPABILITY.json" ;;
    fp8) $M/gpu_step 8b 8 4096 2 12 lora none fp8 joined profile > "$O/fp8$MINDXTRAIN_CUDA_CAPABILITY.json" 2> "$O/fp8.err" || { status=1; tail -5 "$O/fp8.err"; }; cat "$O/fp8$MINDXTRAIN_CUDA_CAPABILITY.json" ;;
    kernels) $M/gpu_kernels 8192 4096 > "$O/kernels.json" 2> "$O/kernels.err" || { status=1; tail -5 "$O/kernels.err"; }; grep attention "$O/kernels.json" ;;
    steps) for s in "0.6b 16 2048 8 8" "1.7b 16 2048 8 8" "4b 16 2048 4 8" "14b 8 2048 2 6" "0.6b 16 2048 8 8 full" "1.7b 16 2048 4 8 full"; do $M/gpu_step $s > "$O/step_$(echo $s | tr ' ' _).json" 2>>"$O/step.err"; echo "$s: $(tail -1 "$O/step_$(echo $s | tr ' ' _).json")"; done ;;
    trajectory*) what=${what#trajectory}; IFS=: read -ra parts <<< "${what#:}"; timeout 200 python3 "$here/trajectory.py" $M/mindxtrain "$O/trajectory" "${parts[@]}" || status=1 ;;
    variants*) timeout 200 python3 "$here/variants.py" $M/mindxtrain "$O/variants" ${what#variants} > "$O/variants.txt" || status=1; cat "$O/variants.txt" ;;
    families*) timeout 300 python3 "$here/families.py" $M/mindxtrain "$O/families" ${what#families} > "$O/families.txt" || status=1; cat "$O/families.txt" ;;
    shakespeare*) timeout 400 python3 $M/src/bench/gpu/shakespeare.py $M/mindxtrain $M/shakespeare ${what#shakespeare} > "$O/shakespeare.json" 2> "$O/shakespeare.err" || status=1; tail -1 "$O/shakespeare.json"; tail -3 "$O/shakespeare.err" ;;
    sanitizer) # Every access and every barrier of our kernels in the op tests. Left out: long documents, and under racecheck, which the
      # library's own kernels do not bear, every test that calls it.
      skip='*LongDocuments*:*InParts*:JoinedAdapters*:HeldInFp8*:*TheSameStepTwice*'
      for tool in memcheck racecheck; do
        [ $tool = memcheck ] || skip="$skip:*.Products*:*Cudnn*:*ABaseHeld*:*WholeModel*:*TrainedInFp8*"
        shards $tool 3 ${SANITIZER_S:-240} compute-sanitizer --tool $tool --kernel-name kns=mxt --error-exitcode 9 $M/gpu_ops_test --gtest_filter="${SANITIZED:--$skip}"; code=$?; [ $code = 0 ] || status=1
        echo "$tool: exit $code"; grep -hn 'ERROR SUMMARY\|RACECHECK SUMMARY\|Error:\|Invalid\|hazard\|PASSED\|FAILED' "$O/$tool"?.log | head -12
      done ;;
    decode*) timeout 400 python3 $M/src/bench/gpu/decode.py $M/mindxtrain $M/decode "$C/smollm2" ${what#decode} > "$O/decode.json" 2> "$O/decode.err" || status=1; tail -1 "$O/decode.json"; tail -5 "$O/decode.err" ;;
    hero*) n=$(tr -dc 'a-z0-9' <<< "$what"); rm -rf $M/hero
      timeout ${HERO_S:-480} python3 $M/src/bench/gpu/hero.py $M/mindxtrain $M/hero ${what#hero} || status=1; cp $M/hero/hero.json "$O/$n.json"; cp $M/hero/plan.json "$O/$n.plan.json"; cp $M/hero/log.txt "$O/$n.log" ;;
    *) (cd $M/src && bash -c "$what") || status=1 ;;
  esac
  echo "== $what: $(($(date +%s) - begin)) s"
  keep
done
wait
[ ! -f "$O/cpu/log.txt" ] || cat "$O/cpu/log.txt"
keep
exit $status
