#include "eval/code/jail.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "base/child_files.h"
#include "base/files.h"

namespace mxt::eval {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#else
#error "the sandbox's list of system calls is for x86-64 and AArch64"
#endif

// System calls that reach for the kernel's more dangerous corners; a Python program needs none.
constexpr uint32_t kForbidden[] = {
    SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_ptrace, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_kexec_load, SYS_init_module, SYS_finit_module,
    SYS_delete_module, SYS_reboot, SYS_swapon, SYS_open_by_handle_at, SYS_fsopen, SYS_fsmount, SYS_move_mount,
    SYS_open_tree, SYS_pidfd_getfd, SYS_quotactl, SYS_acct, SYS_syslog, SYS_clock_settime, SYS_settimeofday,
    // memory that no limit of a process or of the scratch folder counts
    SYS_memfd_create, SYS_shmget, SYS_msgget, SYS_semget};
constexpr uint32_t kNewSpaces =
    CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

bool forbid_calls() {
  constexpr size_t n = std::size(kForbidden), kTests = 6 + n + 3, kSize = kTests + 4;
  static_assert(kSize < 250, "jumps are of one byte");
  sock_filter f[kSize];
  size_t at = 0;
  constexpr size_t kAllow = kTests, kDeny = kTests + 1, kAbsent = kTests + 2, kKill = kTests + 3;
  const auto to = [&](size_t target) { return static_cast<uint8_t>(target - at - 1); };
  f[at++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
  f[at] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArch, 0, to(kKill)), ++at;
  f[at++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
  f[at] = BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, to(kDeny), 0), ++at;  // x86-64's x32 calls
  f[at] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, to(kAbsent), 0),
  ++at;  // hides its flags; the C library falls back to clone
  for (const uint32_t nr : kForbidden) f[at] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, to(kDeny), 0), ++at;
  f[at] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, to(kAllow)), ++at;
  f[at++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0]));
  f[at] = BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kNewSpaces, to(kDeny), 0), ++at;
  while (at < kAllow) f[at] = BPF_JUMP(BPF_JMP | BPF_JA, 0, 0, 0), ++at;
  f[at++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  f[at++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  f[at++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
  f[at++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  sock_fprog program{static_cast<unsigned short>(at), f};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool drop_capabilities() {
  for (int c = 0; c <= 63; ++c)
    if (::prctl(PR_CAPBSET_DROP, c) != 0 && errno != EINVAL) return false;
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  return ::syscall(SYS_capset, &header, none) == 0 && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

}  // namespace

void Jail::prepare() {
  // What an interpreter needs to read: the system's programs and libraries, and its own prefix where that is elsewhere.
  folders_ = {{"/usr", root + "/usr", ""}};
  for (const char* name : {"bin", "lib", "lib32", "lib64"}) {
    const std::string path = std::string("/") + name;
    std::error_code ec;
    if (fs::is_symlink(path, ec))
      folders_.push_back({path, root + path, fs::read_symlink(path, ec).string()});
    else if (fs::is_directory(path, ec))
      folders_.push_back({path, root + path, ""});
  }
  std::error_code ec;
  const std::string real = fs::canonical(python, ec).string();
  if (!ec && !real.starts_with("/usr/") && !real.starts_with("/bin/")) {
    const std::string prefix = fs::path(real).parent_path().parent_path().string();
    if (prefix.size() > 1) folders_.push_back({prefix, root + prefix, ""});
  }
  tmp_ = root + "/tmp";
  dev_ = root + "/dev";
  null_ = dev_ + "/null";
  tmp_options_ = "mode=1777,nr_inodes=4096,size=" + std::to_string(limits.scratch_bytes);
}

// Tells the waiting parent which step failed, and ends everything.
void Jail::fail(const char* step) const {
  char text[160];
  size_t n = 0;
  for (const char* s : {step, ": ", ::strerrordesc_np(errno)})
    for (; s && *s && n < sizeof text; ++s) text[n++] = *s;
  (void)!::write(errors, text, n);
  ::_exit(120);
}

void Jail::build() const {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) fail("making mounts private");
  if (::mount("root", root.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=65536,nr_inodes=256") != 0)
    fail("mounting a root");
  for (const Folder& f : folders_) {
    if (!f.link.empty()) {
      if (::symlink(f.link.c_str(), f.to.c_str()) != 0) fail("linking a system folder");
      continue;
    }
    // Folders above it, one by one, in a copy on the stack.
    char path[4096];
    if (f.to.size() >= sizeof path) fail("a path that is too long");
    std::memcpy(path, f.to.c_str(), f.to.size() + 1);
    for (size_t i = root.size() + 1; i <= f.to.size(); ++i)
      if (path[i] == '/' || path[i] == '\0') {
        const char c = path[i];
        path[i] = '\0';
        if (::mkdir(path, 0755) != 0 && errno != EEXIST) fail("making a folder");
        path[i] = c;
      }
    if (::mount(f.from.c_str(), f.to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) fail("binding a system folder");
    mount_attr a{};
    a.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if (::syscall(SYS_mount_setattr, AT_FDCWD, f.to.c_str(), AT_RECURSIVE, &a, sizeof a) != 0)
      fail("making a system folder read-only");
  }
  if (::mkdir(dev_.c_str(), 0755) != 0 || ::mkdir(tmp_.c_str(), 0755) != 0) fail("making a folder");
  const int null = ::open(null_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
  if (null < 0) fail("making /dev/null");
  ::close(null);
  if (::mount("/dev/null", null_.c_str(), nullptr, MS_BIND, nullptr) != 0) fail("binding /dev/null");
  if (::mount("tmp", tmp_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, tmp_options_.c_str()) != 0)
    fail("mounting the scratch folder");
  if (::chdir(root.c_str()) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0) fail("changing the root");
  if (::umount2(".", MNT_DETACH) != 0) fail("leaving the old root");
  mount_attr a{};
  a.attr_set = MOUNT_ATTR_RDONLY;
  if (::syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &a, sizeof a) != 0) fail("making the root read-only");
  if (::chdir("/tmp") != 0) fail("entering the scratch folder");
}

void Jail::limit() const {
  const auto set = [&](__rlimit_resource what, uint64_t n) {
    const rlimit r{n, n};
    if (::setrlimit(what, &r) != 0) fail("setting a limit");
  };
  set(RLIMIT_CPU, static_cast<uint64_t>(limits.seconds) + 1);
  set(RLIMIT_AS, limits.memory_bytes);
  set(RLIMIT_FSIZE, limits.scratch_bytes);
  set(RLIMIT_NPROC, limits.processes);
  set(RLIMIT_NOFILE, 64);
  set(RLIMIT_CORE, 0);
  set(RLIMIT_MSGQUEUE, 0);
  set(RLIMIT_MEMLOCK, 0);
  if (!drop_capabilities()) fail("giving up capabilities");
  if (!forbid_calls()) fail("forbidding system calls");
}

void Jail::become_python() const {
  ::setsid();
  // 0 the program, 1 and 2 nothing, 3 the result; everything else closed. First out of the way of each other.
  const int in = ::fcntl(input, F_DUPFD, 10), out = ::fcntl(result, F_DUPFD, 10),
            err = ::fcntl(errors, F_DUPFD_CLOEXEC, 10), null = ::open("/dev/null", O_RDWR);
  if (in < 0 || out < 0 || err < 0 || null < 0) fail("arranging files");
  Jail* self = const_cast<Jail*>(this);
  if (::dup2(in, 0) < 0 || ::dup2(null, 1) < 0 || ::dup2(null, 2) < 0 || ::dup2(out, 3) < 0 ||
      ::dup3(err, 4, O_CLOEXEC) < 0)
    fail("arranging files");
  self->errors = 4;
  close_files_but(5, {});
  limit();
  char* const arguments[] = {const_cast<char*>(python.c_str()),
                             const_cast<char*>("-I"),
                             const_cast<char*>("-S"),
                             const_cast<char*>("-B"),
                             const_cast<char*>("-c"),
                             const_cast<char*>(runner.c_str()),
                             nullptr};
  char* const environment[] = {const_cast<char*>("PATH=/usr/bin:/bin"), const_cast<char*>("HOME=/tmp"),
                               const_cast<char*>("LANG=C.UTF-8"), const_cast<char*>("PYTHONHASHSEED=0"), nullptr};
  ::execve(python.c_str(), arguments, environment);
  fail("starting Python");
}

// The kernel forgets that wish where ids change; and who is gone by then sends nothing, but has closed its end of `go`.
void Jail::end_with_parent() const {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  pollfd parent{go, POLLIN, 0};
  if (::poll(&parent, 1, 0) < 0 || (parent.revents & POLLHUP)) ::_exit(121);
}

void Jail::enter() {
  // Of all that the parent has open (a run's lock, other sandboxes' pipes) nothing outlives it here.
  int own[] = {input, result, errors, go};
  close_files_but(3, own);
  end_with_parent();
  for (int s = 1; s < 32; ++s) ::signal(s, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  char c;
  if (::read(go, &c, 1) != 1) ::_exit(121);  // the parent could not map ids, or is gone
  (void)::syscall(SYS_setgroups, 0, nullptr);
  if (::syscall(SYS_setresgid, 0, 0, 0) != 0 || ::syscall(SYS_setresuid, 0, 0, 0) != 0)
    fail("becoming the namespace's root");
  end_with_parent();
  build();
  const pid_t child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (child < 0) fail("starting a process");
  if (child == 0) become_python();
  // The first process: holds no end of a pipe that the parent waits on, and ends, taking all others along, when the
  // program does.
  close_files_but(0, {});
  for (;;) {
    int status = 0;
    const pid_t p = ::waitpid(-1, &status, 0);
    if (p == child || (p < 0 && errno != EINTR)) ::_exit(0);
  }
}

}  // namespace mxt::eval
