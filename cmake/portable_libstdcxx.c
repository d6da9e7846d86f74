// What libstdc++ of GCC 11 (RHEL 9, manylinux_2_34) has not by this version, for the Python module, which takes the
// process's own: std::condition_variable::wait(std::unique_lock<std::mutex>&), GLIBCXX_3.4.30 since it may throw. A
// condition variable begins with its pthread_cond_t, a lock with the address of its mutex, and that with its
// pthread_mutex_t.
#include <pthread.h>

__attribute__((visibility("hidden"))) void _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    pthread_cond_t* condition, pthread_mutex_t** lock) {
  pthread_cond_wait(condition, *lock);
}
